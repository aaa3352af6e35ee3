"""Every command: its module and the line `--help` shows; only names, so that it costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """``function`` of ``module`` does it; ``<function>_options`` says what it takes."""

    module: str
    function: str
    help: str
    plain: bool = False


_JOB, _SERVER, _COMPUTE = (
    "allranks.cli.job.job",
    "allranks.cli.admin.server",
    "allranks.cli.admin.compute",
)
_JOB_CHANGE = "allranks.cli.job.change"
_BACKUP = "allranks.cli.admin.backup"
_ENVIRONMENT = "allranks.cli.assets.environment"
_MODEL = "allranks.cli.assets.model"
_STATE = "allranks.cli.assets.state"
_DATA, _DATASTORE = "allranks.cli.assets.data", "allranks.cli.assets.datastore"

COMMANDS: dict[str, Command] = {
    "run": Command(
        "allranks.cli.submit.run", "run", "submit a command as a job, follow it, exit as it does"
    ),
    "doctor": Command(
        "allranks.cli.preflight.doctor", "doctor", "look for what would keep jobs from running"
    ),
    "top": Command("allranks.cli.admin.top", "top", "the jobs that run and what they use"),
    "gc": Command("allranks.cli.admin.gc", "gc", "remove what nobody needs any more"),
    "completion": Command(
        "allranks.cli.admin.completion",
        "completion",
        "print a completion script for your shell",
        True,
    ),
    "job create": Command("allranks.cli.submit.create", "create", "submit the job of a YAML file"),
    "job validate": Command(
        "allranks.cli.submit.create", "validate", "check a YAML file, submit nothing"
    ),
    "job list": Command(
        "allranks.cli.job.list_jobs", "list_jobs", "the newest jobs, or those that match"
    ),
    "job show": Command(_JOB, "show_job", "everything about a job"),
    "job stream": Command("allranks.cli.job.logs", "stream", "follow a job's output to its end"),
    "job logs": Command("allranks.cli.job.logs", "logs", "what the ranks have printed"),
    "job cancel": Command(_JOB, "cancel", "end a job"),
    "job wait": Command(_JOB, "wait", "return once a job has ended, as it did"),
    "job download": Command("allranks.cli.job.download", "fetch", "fetch a job's outputs and logs"),
    "job files": Command("allranks.cli.job.files", "files", "the files that a job left"),
    "job metrics": Command(
        "allranks.cli.job.metrics", "metrics", "the numbers that ranks have printed"
    ),
    "job explain": Command("allranks.cli.job.explain", "explain", "why a job failed, at length"),
    "job events": Command(_JOB, "events", "what happened to a job, in order"),
    "job preempt": Command(_JOB, "preempt", "rehearse that its nodes are taken away"),
    "job stacks": Command("allranks.cli.job.stacks", "stacks", "where every process of a job is"),
    "job tensorboard": Command(
        "allranks.cli.job.tensorboard", "tensorboard", "TensorBoard on what a job has logged"
    ),
    "job restart": Command(
        "allranks.cli.submit.restart", "restart", "run an ended job again, as a new one"
    ),
    "job compare": Command("allranks.cli.job.compare", "compare", "what differs between jobs"),
    "job tag": Command(_JOB_CHANGE, "tag", "set and remove tags of a job"),
    "job archive": Command(_JOB_CHANGE, "archive", "hide jobs from lists"),
    "job restore": Command(_JOB_CHANGE, "restore", "show archived jobs in lists again"),
    "job delete": Command(_JOB_CHANGE, "delete", "remove ended jobs with outputs and logs"),
    "report": Command(
        "allranks.cli.report.commands", "report", "what kept a job from being faster"
    ),
    "report scaling": Command(
        "allranks.cli.report.commands", "scaling", "what more nodes bring a job"
    ),
    "report goodput": Command(
        "allranks.cli.report.goodput", "goodput", "where the time of jobs went"
    ),
    "compute create": Command(_COMPUTE, "create", "name a cluster, or a part of it, for jobs"),
    "compute list": Command(_COMPUTE, "list_computes", "the computes there are"),
    "compute show": Command(_COMPUTE, "show_compute", "its hosts, what is free, what waits"),
    "compute update": Command(_COMPUTE, "update", "change a compute"),
    "compute delete": Command(_COMPUTE, "delete", "forget a compute"),
    "compute wait": Command(_COMPUTE, "wait", "return once enough of its hosts are ready"),
    "compute set-default": Command(_COMPUTE, "set_default", "where jobs go that name none"),
    "compute map": Command(_COMPUTE, "stand_for", "let a name in job files mean a compute"),
    "instance map": Command(
        "allranks.cli.admin.instance", "stand_for", "how many GPUs an instance type has"
    ),
    "environment create": Command(_ENVIRONMENT, "create", "add a version of an environment"),
    "environment list": Command(_ENVIRONMENT, "list_environments", "the environments there are"),
    "environment show": Command(_ENVIRONMENT, "show_environment", "what it asks for, what it has"),
    "environment build": Command(_ENVIRONMENT, "build", "make it on this machine now"),
    "environment export": Command(_ENVIRONMENT, "export", "print every version that it has"),
    "environment clone": Command(_ENVIRONMENT, "clone", "the same under another name"),
    "environment label": Command(_ENVIRONMENT, "label", "let NAME@LABEL mean that version"),
    "environment delete": Command(_ENVIRONMENT, "delete", "forget a version"),
    "environment map": Command(_ENVIRONMENT, "stand_for", "what is taken for what cannot be had"),
    "data create": Command(_DATA, "create", "give data a name and a version"),
    "data list": Command(_DATA, "list_data", "the data there is"),
    "data show": Command(_DATA, "show_data", "where it lies, and what made it"),
    "data label": Command(_DATA, "label", "let NAME@LABEL mean that version"),
    "data delete": Command(_DATA, "delete", "forget a version"),
    "data map": Command(_DATA, "stand_for", "send addresses somewhere else"),
    "model register": Command(_MODEL, "register", "keep what a job left as a version of a model"),
    "model create": Command(_MODEL, "register", "the same of files here, or as a YAML says"),
    "model list": Command(_MODEL, "list_models", "the models there are"),
    "model show": Command(_MODEL, "show_model", "its files, and where they come from"),
    "model label": Command(_MODEL, "label", "let NAME@LABEL mean that version"),
    "model download": Command(
        "allranks.cli.job.download", "fetch_model", "fetch the files of a model"
    ),
    "model delete": Command(_MODEL, "delete", "forget a version"),
    "state list": Command(_STATE, "list_states", "the state folders there are"),
    "state show": Command(_STATE, "show_state", "its versions, and what is in one"),
    "state restore": Command(_STATE, "restore", "step back to a version"),
    "state download": Command(
        "allranks.cli.job.download", "fetch_state", "fetch the files of a state"
    ),
    "state delete": Command(_STATE, "delete", "remove a state with all its versions"),
    "datastore create": Command(_DATASTORE, "create", "name a place for data, and what opens it"),
    "datastore list": Command(_DATASTORE, "list_datastores", "the datastores there are"),
    "datastore show": Command(_DATASTORE, "show_datastore", "where it is, and what opens it"),
    "datastore delete": Command(_DATASTORE, "delete", "forget a datastore"),
    "server start": Command(_SERVER, "start", "start this home's server in the background"),
    "server stop": Command(_SERVER, "stop", "end the server and the jobs of this machine"),
    "server status": Command(_SERVER, "status", "which server runs, where"),
    "server token": Command(
        "allranks.cli.admin.tokens", "token", "who may use this server, and how"
    ),
    "server run": Command(_SERVER, "run", "serve in the foreground"),
    "server backup": Command(_BACKUP, "backup", "write this home to a file, while it runs"),
    "server restore": Command(_BACKUP, "restore", "make this home what a backup holds"),
}
# Asked by completion scripts, not typed by people.
COMPLETE = "__complete"


def groups() -> list[str]:
    return list(dict.fromkeys(name.split()[0] for name in COMMANDS if " " in name))


def in_group(group: str) -> list[tuple[str, Command]]:
    """Its commands, and the command that has the group's own name, where there is one."""
    return [each for each in COMMANDS.items() if each[0].split()[0] == group]


def chosen(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name that the words begin with, whether there is such a command or not, and the rest."""
    grouped = len(words) > 1 and words[0] in groups()
    if grouped and (f"{words[0]} {words[1]}" in COMMANDS or words[0] not in COMMANDS):
        return f"{words[0]} {words[1]}", [*words[2:]]
    return words[0], [*words[1:]]
