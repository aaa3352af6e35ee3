"""Every command: its function and help line. Imports none of their modules."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple


class Command(NamedTuple):
    """``entry`` is ``module:function`` in this package; ``<function>_options`` of the same module
    adds the command's options to a parser. A ``plain`` command has no --json and --quiet.
    ``alone``: the group's name without a word runs it."""

    entry: str
    help: str
    plain: bool = False
    alone: bool = False

    def load(self, suffix: str = "") -> Any:
        """Import the module and return the function whose name ends with the suffix."""
        module, _, function = self.entry.partition(":")
        return getattr(importlib.import_module(f"allranks.cli.{module}"), function + suffix)


COMMANDS: dict[str, Command] = {
    "run": Command("submit.run:run", "run a command as a job and stream its output"),
    "doctor": Command("preflight.doctor:doctor", "check for problems that keep jobs from running"),
    "top": Command(
        "admin.top:top", "show active jobs, or the ranks of one, and their resource use"
    ),
    "ui": Command("admin.ui:ui", "open the web page"),
    "gc": Command("admin.gc:gc", "delete unreferenced data"),
    "login": Command("admin.login:login", "use a server on another machine from now on"),
    "import": Command(
        "importing.import_folder:import_folder",
        "say what would run of files for Azure ML and SageMaker",
    ),
    "az": Command("az.az:az", "run a line of Azure's command line: az ml job create …", plain=True),
    "python": Command(
        "admin.python:python", "run a Python program written for Azure ML", plain=True
    ),
    "ssm": Command(
        "admin.ssm:ssm", "run a line of simple-sagemaker: ssm run -p P -t T …", plain=True
    ),
    "completion": Command(
        "admin.completion:completion", "print a completion script for your shell", plain=True
    ),
    "dev": Command("dev.dev:dev", "keep nodes to work on, and open a shell there", alone=True),
    "dev list": Command("dev.dev:list_sessions", "list sessions"),
    "dev attach": Command("dev.dev:attach", "open a shell in a session"),
    "dev pull": Command("dev.pull:pull", "fetch what was changed in a session"),
    "dev stop": Command("dev.dev:stop", "end a session"),
    "job create": Command("submit.create:create", "submit a job from a YAML file"),
    "job validate": Command("submit.create:validate", "check a YAML file without submitting it"),
    "job list": Command("job.list_jobs:list_jobs", "list jobs, newest first"),
    "job show": Command("job.job:show_job", "show the details of a job"),
    "job stream": Command("job.logs:stream", "stream the output of a job until it ends"),
    "job logs": Command("job.logs:logs", "print the output of the ranks"),
    "job cancel": Command("job.job:cancel", "cancel a job"),
    "job wait": Command("job.job:wait", "wait for a job to end"),
    "job download": Command("job.download:fetch", "download the files of a job"),
    "job files": Command("job.files:files", "list the files of a job"),
    "job metrics": Command("job.metrics:metrics", "show the metrics of a job"),
    "job explain": Command("job.explain:explain", "explain why a job failed"),
    "job events": Command("job.job:events", "list the events of a job"),
    "job preempt": Command("job.job:preempt", "simulate a preemption of its nodes"),
    "job debug": Command("job.enter:debug", "debug a held failure where it happened", plain=True),
    "job release": Command("job.job:release", "end a job that is held after a failure"),
    "job stacks": Command("job.stacks:stacks", "show the Python stacks of every rank"),
    "job profile": Command("job.profile:profile", "say what holds a running job up"),
    "job exec": Command("job.enter:exec", "run a program in a running job"),
    "job shell": Command("job.enter:shell", "open a shell in a running job", plain=True),
    "job port-forward": Command("job.enter:port_forward", "reach a port of a running job"),
    "job cp": Command("job.copy:cp", "copy files into a running job, and out of it"),
    "job ssh-config": Command("ssh.ssh_config:ssh_config", "let ssh, scp and VS Code into a job"),
    "job tensorboard": Command("job.tensorboard:tensorboard", "open TensorBoard on a job's logs"),
    "job restart": Command("submit.restart:restart", "run an ended job again as a new job"),
    "job compare": Command("job.compare:compare", "show the differences between jobs"),
    "job tag": Command("job.change:tag", "set and remove tags of a job"),
    "job archive": Command("job.change:archive", "hide jobs from lists"),
    "job restore": Command("job.change:restore", "show archived jobs in lists again"),
    "job delete": Command("job.change:delete", "delete ended jobs with their outputs and logs"),
    "report": Command("report.commands:report", "show what slowed a job down"),
    "report scaling": Command("report.commands:scaling", "show how a job scales with nodes"),
    "report sweep": Command("report.sweep:sweep", "show how a sweep found its best trial"),
    "report goodput": Command("report.goodput:goodput", "show how jobs spent their time"),
    "compute create": Command("admin.compute:create", "create a compute"),
    "compute list": Command("admin.compute:list_computes", "list computes"),
    "compute show": Command(
        "admin.compute:show_compute", "show hosts, free capacity and queued jobs"
    ),
    "compute update": Command("admin.compute:update", "update a compute"),
    "compute delete": Command("admin.compute:delete", "delete a compute"),
    "compute render": Command("admin.compute:render", "print the rights a cluster has to grant"),
    "compute wait": Command("admin.compute:wait", "wait until enough hosts are ready"),
    "compute set-default": Command(
        "admin.compute:set_default", "set the compute used when a job names none"
    ),
    "compute map": Command(
        "admin.compute:map_name", "map a compute name in job files to a compute"
    ),
    "instance map": Command(
        "admin.instance:map_size", "set the number of GPUs of an instance type"
    ),
    "environment create": Command(
        "assets.environment:create", "create a version of an environment"
    ),
    "environment list": Command("assets.environment:list_environments", "list environments"),
    "environment show": Command(
        "assets.environment:show_environment", "show its definition and local build"
    ),
    "environment build": Command(
        "assets.environment:build", "build an environment on this machine"
    ),
    "environment export": Command("assets.environment:export", "export it as requirements or YAML"),
    "environment clone": Command(
        "assets.environment:clone", "copy an environment under another name"
    ),
    "environment label": Command("assets.versions:label", "point NAME@LABEL to a version"),
    "environment delete": Command("assets.versions:delete", "delete a version"),
    "environment map": Command(
        "assets.environment:map_requirement", "set substitutes for unavailable requirements"
    ),
    "component create": Command("submit.component:create", "create a version of a component"),
    "component list": Command("submit.component:list_components", "list components"),
    "component show": Command("submit.component:show_component", "show the definition"),
    "component label": Command("assets.versions:label", "point NAME@LABEL to a version"),
    "component delete": Command("assets.versions:delete", "delete a version"),
    "data create": Command("assets.data:create", "create a version of a data asset"),
    "data upload": Command("assets.data:upload", "upload a file or a folder as a data asset"),
    "data download": Command("job.download:fetch_data", "download the files of a data asset"),
    "data list": Command("assets.data:list_data", "list data assets"),
    "data show": Command("assets.data:show_data", "show the location and origin of data"),
    "data label": Command("assets.versions:label", "point NAME@LABEL to a version"),
    "data delete": Command("assets.versions:delete", "delete a version"),
    "data map": Command("assets.data:map_prefix", "map URI prefixes to other locations"),
    "model register": Command(
        "assets.model:register", "register a job's output as a model version"
    ),
    "model create": Command("assets.model:register", "create a model version from files or YAML"),
    "model list": Command("assets.model:list_models", "list models"),
    "model show": Command("assets.model:show_model", "show the files and origin of a model"),
    "model label": Command("assets.versions:label", "point NAME@LABEL to a version"),
    "model download": Command("job.download:fetch_model", "download the files of a model"),
    "model delete": Command("assets.versions:delete", "delete a version"),
    "model deploy": Command("endpoint.deployment:deploy", "let a model answer requests"),
    "endpoint create": Command("endpoint.endpoint:create", "create an address for deployments"),
    "endpoint list": Command("endpoint.endpoint:list_endpoints", "list endpoints"),
    "endpoint show": Command("endpoint.endpoint:show_endpoint", "show how an endpoint answers"),
    "endpoint update": Command("endpoint.endpoint:update", "divide its requests anew"),
    "endpoint invoke": Command("endpoint.endpoint:invoke", "send a request", plain=True),
    "endpoint delete": Command("endpoint.endpoint:delete", "delete it with its deployments"),
    "endpoint get-credentials": Command("endpoint.endpoint:get_credentials", "print its keys"),
    "endpoint regenerate-keys": Command("endpoint.endpoint:regenerate_keys", "replace a key"),
    "endpoint list-jobs": Command("endpoint.batch:list_jobs", "list jobs of a batch endpoint"),
    "deployment create": Command("endpoint.deployment:create", "create replicas of a model"),
    "deployment list": Command("endpoint.deployment:list_deployments", "list deployments"),
    "deployment show": Command("endpoint.deployment:show_deployment", "show its replicas"),
    "deployment logs": Command("endpoint.deployment:logs", "print what its replicas print"),
    "deployment update": Command(
        "endpoint.deployment:update", "change its code, model or number of replicas"
    ),
    "deployment delete": Command("endpoint.deployment:delete", "delete a deployment"),
    "state list": Command("assets.state:list_states", "list state folders"),
    "state show": Command(
        "assets.state:show_state", "show the versions and files of a state folder"
    ),
    "state restore": Command("assets.state:restore", "restore a version of a state folder"),
    "state download": Command("job.download:fetch_state", "download the files of a state folder"),
    "state delete": Command("assets.state:delete", "delete a state folder with all versions"),
    "datastore create": Command(
        "assets.datastore:create", "create a datastore with its credentials"
    ),
    "datastore list": Command("assets.datastore:list_datastores", "list datastores"),
    "datastore show": Command(
        "assets.datastore:show_datastore", "show the location and credential kind"
    ),
    "datastore set-default": Command(
        "assets.datastore:set_default", "choose the datastore that uploads go to"
    ),
    "datastore delete": Command("assets.datastore:delete", "delete a datastore"),
    "schedule create": Command("submit.schedule:create", "submit a job again and again"),
    "schedule list": Command("submit.schedule:list_schedules", "list schedules"),
    "schedule show": Command("submit.schedule:show_schedule", "show a schedule and its last job"),
    "schedule pause": Command("submit.schedule:pause", "submit no jobs until it is resumed"),
    "schedule resume": Command("submit.schedule:resume", "submit jobs again"),
    "schedule trigger": Command("submit.schedule:trigger", "submit its job now"),
    "schedule delete": Command("submit.schedule:delete", "delete a schedule; its jobs stay"),
    "server start": Command("admin.server:start", "start the server in the background"),
    "server stop": Command("admin.server:stop", "stop the server and the jobs on this machine"),
    "server restart": Command(
        "admin.restart:restart", "let the server become this version; jobs go on"
    ),
    "server status": Command("admin.server:status", "show whether the server runs, and where"),
    "server token": Command("admin.tokens:token", "create, list and revoke access tokens"),
    "server run": Command("admin.server:run", "run the server in the foreground"),
    "context list": Command("admin.login:list_contexts", "list the servers you are logged in to"),
    "context use": Command("admin.login:use_context", "choose the server that commands use"),
    "context delete": Command("admin.login:delete_context", "forget a server and its token"),
    "server backup": Command("admin.backup:backup", "back up this home to a file"),
    "server restore": Command("admin.backup:restore", "restore this home from a backup"),
}


def groups() -> list[str]:
    return list(dict.fromkeys(name.split()[0] for name in COMMANDS if " " in name))


def in_group(group: str) -> list[tuple[str, Command]]:
    """The group's commands, and the command with the group's own name, if there is one."""
    return [item for item in COMMANDS.items() if item[0].split()[0] == group]


def split_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command's name, whether it exists or not, and the words after it."""
    grouped = len(words) > 1 and words[0] in groups()
    if grouped and (f"{words[0]} {words[1]}" in COMMANDS or words[0] not in COMMANDS):
        return f"{words[0]} {words[1]}", [*words[2:]]
    return words[0], [*words[1:]]
