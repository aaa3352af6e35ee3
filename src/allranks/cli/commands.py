"""Every command: its module, function and help line. Imports none of the modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """``function`` of ``module`` runs it; ``<function>_options`` adds its options to a parser.
    A ``plain`` command has no --json and --quiet."""

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
_VERSIONS = "allranks.cli.assets.versions"
_DATA, _DATASTORE = "allranks.cli.assets.data", "allranks.cli.assets.datastore"

COMMANDS: dict[str, Command] = {
    "run": Command(
        "allranks.cli.submit.run", "run", "run a command as a job and stream its output"
    ),
    "doctor": Command(
        "allranks.cli.preflight.doctor", "doctor", "check for problems that keep jobs from running"
    ),
    "top": Command("allranks.cli.admin.top", "top", "show active jobs and their resource use"),
    "gc": Command("allranks.cli.admin.gc", "gc", "delete unreferenced data"),
    "completion": Command(
        "allranks.cli.admin.completion",
        "completion",
        "print a completion script for your shell",
        True,
    ),
    "job create": Command("allranks.cli.submit.create", "create", "submit a job from a YAML file"),
    "job validate": Command(
        "allranks.cli.submit.create", "validate", "check a YAML file without submitting it"
    ),
    "job list": Command("allranks.cli.job.list_jobs", "list_jobs", "list jobs, newest first"),
    "job show": Command(_JOB, "show_job", "show the details of a job"),
    "job stream": Command(
        "allranks.cli.job.logs", "stream", "stream the output of a job until it ends"
    ),
    "job logs": Command("allranks.cli.job.logs", "logs", "print the output of the ranks"),
    "job cancel": Command(_JOB, "cancel", "cancel a job"),
    "job wait": Command(_JOB, "wait", "wait for a job to end"),
    "job download": Command(
        "allranks.cli.job.download", "fetch", "download a job's outputs and logs"
    ),
    "job files": Command("allranks.cli.job.files", "files", "list the files of a job"),
    "job metrics": Command("allranks.cli.job.metrics", "metrics", "show the metrics of a job"),
    "job explain": Command("allranks.cli.job.explain", "explain", "explain why a job failed"),
    "job events": Command(_JOB, "events", "list the events of a job"),
    "job preempt": Command(_JOB, "preempt", "simulate a preemption of its nodes"),
    "job stacks": Command(
        "allranks.cli.job.stacks", "stacks", "show the Python stacks of every rank"
    ),
    "job tensorboard": Command(
        "allranks.cli.job.tensorboard", "tensorboard", "open TensorBoard on a job's logs"
    ),
    "job restart": Command(
        "allranks.cli.submit.restart", "restart", "run an ended job again as a new job"
    ),
    "job compare": Command(
        "allranks.cli.job.compare", "compare", "show the differences between jobs"
    ),
    "job tag": Command(_JOB_CHANGE, "tag", "set and remove tags of a job"),
    "job archive": Command(_JOB_CHANGE, "archive", "hide jobs from lists"),
    "job restore": Command(_JOB_CHANGE, "restore", "show archived jobs in lists again"),
    "job delete": Command(_JOB_CHANGE, "delete", "delete ended jobs with their outputs and logs"),
    "report": Command("allranks.cli.report.commands", "report", "show what slowed a job down"),
    "report scaling": Command(
        "allranks.cli.report.commands", "scaling", "show how a job scales with nodes"
    ),
    "report goodput": Command(
        "allranks.cli.report.goodput", "goodput", "show how jobs spent their time"
    ),
    "compute create": Command(_COMPUTE, "create", "create a compute"),
    "compute list": Command(_COMPUTE, "list_computes", "list computes"),
    "compute show": Command(_COMPUTE, "show_compute", "show hosts, free capacity and queued jobs"),
    "compute update": Command(_COMPUTE, "update", "update a compute"),
    "compute delete": Command(_COMPUTE, "delete", "delete a compute"),
    "compute wait": Command(_COMPUTE, "wait", "wait until enough hosts are ready"),
    "compute set-default": Command(
        _COMPUTE, "set_default", "set the compute used when a job names none"
    ),
    "compute map": Command(_COMPUTE, "map_name", "map a compute name in job files to a compute"),
    "instance map": Command(
        "allranks.cli.admin.instance", "map_size", "set the number of GPUs of an instance type"
    ),
    "environment create": Command(_ENVIRONMENT, "create", "create a version of an environment"),
    "environment list": Command(_ENVIRONMENT, "list_environments", "list environments"),
    "environment show": Command(
        _ENVIRONMENT, "show_environment", "show its definition and local build"
    ),
    "environment build": Command(_ENVIRONMENT, "build", "build an environment on this machine"),
    "environment export": Command(_ENVIRONMENT, "export", "export it as requirements or YAML"),
    "environment clone": Command(_ENVIRONMENT, "clone", "copy an environment under another name"),
    "environment label": Command(_VERSIONS, "label", "point NAME@LABEL to a version"),
    "environment delete": Command(_VERSIONS, "delete", "delete a version"),
    "environment map": Command(
        _ENVIRONMENT, "map_requirement", "set substitutes for unavailable requirements"
    ),
    "data create": Command(_DATA, "create", "create a version of a data asset"),
    "data list": Command(_DATA, "list_data", "list data assets"),
    "data show": Command(_DATA, "show_data", "show the location and origin of data"),
    "data label": Command(_VERSIONS, "label", "point NAME@LABEL to a version"),
    "data delete": Command(_VERSIONS, "delete", "delete a version"),
    "data map": Command(_DATA, "map_prefix", "map URI prefixes to other locations"),
    "model register": Command(_MODEL, "register", "register a job's output as a model version"),
    "model create": Command(_MODEL, "register", "create a model version from files or YAML"),
    "model list": Command(_MODEL, "list_models", "list models"),
    "model show": Command(_MODEL, "show_model", "show the files and origin of a model"),
    "model label": Command(_VERSIONS, "label", "point NAME@LABEL to a version"),
    "model download": Command(
        "allranks.cli.job.download", "fetch_model", "download the files of a model"
    ),
    "model delete": Command(_VERSIONS, "delete", "delete a version"),
    "state list": Command(_STATE, "list_states", "list state folders"),
    "state show": Command(_STATE, "show_state", "show the versions and files of a state folder"),
    "state restore": Command(_STATE, "restore", "restore a version of a state folder"),
    "state download": Command(
        "allranks.cli.job.download", "fetch_state", "download the files of a state folder"
    ),
    "state delete": Command(_STATE, "delete", "delete a state folder with all versions"),
    "datastore create": Command(_DATASTORE, "create", "create a datastore with its credentials"),
    "datastore list": Command(_DATASTORE, "list_datastores", "list datastores"),
    "datastore show": Command(
        _DATASTORE, "show_datastore", "show the location and credential kind"
    ),
    "datastore delete": Command(_DATASTORE, "delete", "delete a datastore"),
    "server start": Command(_SERVER, "start", "start the server in the background"),
    "server stop": Command(_SERVER, "stop", "stop the server and the jobs on this machine"),
    "server status": Command(_SERVER, "status", "show whether the server runs, and where"),
    "server token": Command(
        "allranks.cli.admin.tokens", "token", "create, list and revoke access tokens"
    ),
    "server run": Command(_SERVER, "run", "run the server in the foreground"),
    "server backup": Command(_BACKUP, "backup", "back up this home to a file"),
    "server restore": Command(_BACKUP, "restore", "restore this home from a backup"),
}
# Called by completion scripts.
COMPLETE = "__complete"


def groups() -> list[str]:
    return list(dict.fromkeys(name.split()[0] for name in COMMANDS if " " in name))


def in_group(group: str) -> list[tuple[str, Command]]:
    """The group's commands, and the command with the group's own name, if there is one."""
    return [each for each in COMMANDS.items() if each[0].split()[0] == group]


def split_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command's name, whether it exists or not, and the words after it."""
    grouped = len(words) > 1 and words[0] in groups()
    if grouped and (f"{words[0]} {words[1]}" in COMMANDS or words[0] not in COMMANDS):
        return f"{words[0]} {words[1]}", [*words[2:]]
    return words[0], [*words[1:]]
