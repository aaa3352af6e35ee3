"""What programs for `azure.ai.ml` use beyond allranks' own Python API."""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import PrivateAttr

from allranks import sdk
from allranks.api import routes
from allranks.compat.azure.absent import Absent, with_words
from allranks.compat.azure.notes import without_effect
from allranks.compat.azure.tracking import arm_id, mlflow_tracking_uri
from allranks.errors import AllranksError, Problem, UsageError
from allranks.sdk.client import Job, Jobs
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import submission_notes
from allranks.sdk.pipelines.components import Component
from allranks.sdk.submit.command import Command
from allranks.sdk.submit.create import check
from allranks.spec import job_parts, schedule
from allranks.spec.compute import Compute
from allranks.spec.data import Data
from allranks.spec.datastore import Datastore
from allranks.spec.fields.base import plain
from allranks.spec.fields.problems import nearest
from allranks.spec.job_parts import Environment
from allranks.spec.model import Model
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document

# Where an input's data would be that is given later.
_LATER = "not-given-yet"
_DATA = ("uri_file", "uri_folder", "mltable", "mlflow_model", "custom_model", "triton_model")


class OpenInput:
    """An input without data: the declaration of a component's or a command's input."""

    def __init__(self, **keywords: Any) -> None:
        self.given = {key: value for key, value in keywords.items() if value is not None}
        self.type = str(keywords.get("type") or "uri_folder")

    def __repr__(self) -> str:
        return f"Input(type={self.type!r})"

    def declared(self) -> Document:
        """As a component's file has it."""
        keys = ("type", "default", "optional", "description", "min", "max", "enum", "mode")
        return {"type": self.type} | {k: self.given[k] for k in keys if k in self.given}


def Input(  # Azure's name
    *, type: str = "uri_folder", path: Any = None, **more: Any
) -> job_parts.Input | OpenInput:
    """An input with data, or without ``path`` the declaration of one."""
    for name in more:
        if name not in (*OF_DATA, *OF_DECLARATIONS):
            hint = nearest(name, (*OF_DATA, *OF_DECLARATIONS)) or "leave it out"
            raise UsageError(f"the argument `{name}` of Input is not there in allranks", hint=hint)
    if path is None:
        return OpenInput(type=type, **more)
    keys = {key: value for key, value in more.items() if value is not None and key in OF_DATA}
    return job_parts.Input(type=type, path=path, **keys)  # type: ignore[arg-type]


OF_DATA = ("mode", "datastore", "unpack", "sharded")
# What says nothing about data that is given.
OF_DECLARATIONS = (
    "default",
    "optional",
    "description",
    "min",
    "max",
    "enum",
    "intellectual_property",
)


def Output(  # Azure's name
    *, type: str = "uri_folder", **more: Any
) -> job_parts.Output:
    """An output; its description is left out."""
    keys = {key: value for key, value in more.items() if value is not None}
    keys.pop("description", None)
    return job_parts.Output(type=type, **keys)  # type: ignore[arg-type]


class CommandWithComponent(Command):
    """What ``command`` returns: also the component of it, to be registered and called."""

    _declaration: Document = PrivateAttr(default_factory=dict)

    @property
    def component(self) -> CommandComponent:
        """The command as a component, with its inputs as they were declared."""
        kept = {key: value for key, value in self._declaration.items() if key in OF_COMPONENTS}
        return CommandComponent(**kept)


OF_COMPONENTS = (
    *("name", "display_name", "description", "tags", "inputs", "outputs", "code", "command"),
    *("environment", "environment_variables", "distribution", "resources", "is_deterministic"),
    *("instance_count", "instance_type"),
)


def command(
    *, inputs: Mapping[str, Any] | None = None, is_deterministic: bool = True, **keywords: Any
) -> CommandWithComponent:
    """``allranks.command``; an input that is only declared is given when the command is called."""
    declaration = {**keywords, "is_deterministic": is_deterministic}
    if inputs is not None:
        declaration["inputs"] = inputs
        keywords["inputs"] = {name: _given(each) for name, each in inputs.items()}
    made = CommandWithComponent.parse(sdk.command(**keywords).to_dict())
    made._declaration = declaration
    return made


def _given(value: Any) -> Any:
    if not isinstance(value, OpenInput):
        return value
    if value.type in _DATA:
        return job_parts.Input(type=value.type, path=_LATER)  # type: ignore[arg-type]
    return value.given.get("default", "")


class CommandComponent(Component):
    """A component with a command. The keywords are the keys of its file."""

    kind = "command"

    def __init__(self, **keywords: Any) -> None:
        super().__init__(component_data(self.kind, keywords))


def component_data(kind: str, keywords: Mapping[str, Any]) -> Document:
    """A component as its file has it, of the keywords of its class."""
    data = {key: _data(value) for key, value in keywords.items() if value is not None}
    for key in ("inputs", "outputs"):
        if key in data:
            data[key] = {name: _declared(each) for name, each in data[key].items()}
    if "code" in data:
        data["code"] = str(Path(data["code"]).absolute())
    for key in ("instance_count", "instance_type"):
        if key in data:
            data.setdefault("resources", {})[key] = data.pop(key)
    return {**data, "type": kind}


def _declared(value: Any) -> Any:
    if isinstance(value, OpenInput):
        return value.declared()
    made = plain(value)
    if isinstance(made, Mapping):
        return {key: each for key, each in made.items() if key in ("type", "mode", "default")}
    return {"type": TYPES_OF_VALUES.get(type(made), "string"), "default": made}


TYPES_OF_VALUES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number"}


def _data(value: Any) -> Any:
    return (
        {k: _data(v) if not isinstance(v, OpenInput) else v for k, v in value.items()}
        if (isinstance(value, Mapping))
        else plain(value)
    )


class RunFunction:
    """What a parallel component runs on each mini-batch: ``run(mini_batch)`` of a script."""

    def __init__(
        self,
        *,
        code: str | None = None,
        entry_script: str,
        program_arguments: str | None = None,
        environment: Any = None,
        append_row_to: str | None = None,
        model: object = None,
        **_: Any,
    ) -> None:
        if model is not None:
            raise UsageError("`model` of RunFunction is not there", hint="make it an input")
        keys = {
            "type": "run_function",
            "code": None if code is None else str(Path(code).absolute()),
            "entry_script": entry_script,
            "program_arguments": program_arguments,
            "environment": _environment(environment),
            "append_row_to": append_row_to,
        }
        self.data = {key: value for key, value in keys.items() if value is not None}


def _environment(environment: Any) -> Any:
    """With the content of its conda file: a component's paths start elsewhere."""
    if not isinstance(environment, Environment):
        return environment
    data = environment.model_dump(mode="json", exclude_defaults=True)
    if isinstance(data.get("conda_file"), str):
        data["conda_file"] = _read(data["conda_file"])
    return data


class ParallelComponent(Component):
    """A component that runs an entry script on many files."""


IDLE = ("input_data_format", "docker_args", "shm_size", "environment_variables")


def parallel_run_function(
    *, task: RunFunction, instance_count: int | None = None, **keywords: Any
) -> ParallelComponent:
    """A parallel component. The keywords are the keys of its file."""
    kept = {key: value for key, value in keywords.items() if key not in IDLE}
    idle = {key: value for key, value in keywords.items() if key in IDLE}
    without_effect("parallel_run_function", idle)
    if instance_count is not None:
        kept["resources"] = {"instance_count": instance_count}
    return ParallelComponent({**component_data("parallel", kept), "task": task.data})


def _moment(value: Any) -> Any:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value


def CronTrigger(**keywords: Any) -> schedule.CronTrigger:  # Azure's name
    """Times that match a cron expression; start and end may be datetimes."""
    fields = {key: _moment(value) for key, value in keywords.items() if value is not None}
    return schedule.CronTrigger.model_validate(fields)


def RecurrenceTrigger(**keywords: Any) -> schedule.RecurrenceTrigger:  # as above
    """Every so many minutes, hours, days, weeks or months; start and end may be datetimes."""
    fields = {key: _moment(value) for key, value in keywords.items() if value is not None}
    return schedule.RecurrenceTrigger.model_validate(fields)


class TimeZone:
    """Names of time zones: ``TimeZone.UTC``; any other by Windows' name in capitals."""

    UTC = "UTC"
    PACIFIC_STANDARD_TIME = "Pacific Standard Time"
    MOUNTAIN_STANDARD_TIME = "Mountain Standard Time"
    CENTRAL_STANDARD_TIME = "Central Standard Time"
    EASTERN_STANDARD_TIME = "Eastern Standard Time"
    GMT_STANDARD_TIME = "GMT Standard Time"
    W__EUROPE_STANDARD_TIME = "W. Europe Standard Time"
    CHINA_STANDARD_TIME = "China Standard Time"
    INDIA_STANDARD_TIME = "India Standard Time"
    TOKYO_STANDARD_TIME = "Tokyo Standard Time"


def load_environment(source: str | os.PathLike[str], **_: Any) -> Environment:
    """An environment from its YAML file."""
    data = _read(source)
    if isinstance(data.get("conda_file"), str):
        data["conda_file"] = _read(Path(source).absolute().parent / data["conda_file"])
    if isinstance(data.get("build"), dict):
        data["build"]["path"] = _beside(source, data["build"]["path"])
    return Environment.model_validate(data)


def load_data(source: str | os.PathLike[str], **_: Any) -> Data:
    """A data asset from its YAML file."""
    data = _read(source)
    return Data.model_validate({**data, "path": _beside(source, data["path"])})


def load_model(source: str | os.PathLike[str], **_: Any) -> Model:
    """A model from its YAML file."""
    data = _read(source)
    return Model.model_validate({**data, "path": _beside(source, data["path"])})


def load_compute(source: str | os.PathLike[str], **_: Any) -> Compute:
    """A compute from its YAML file."""
    return Compute.model_validate(_read(source))


def load_datastore(source: str | os.PathLike[str], **_: Any) -> Datastore:
    """A datastore from its YAML file."""
    return Datastore.model_validate(_read(source))


def _read(source: str | os.PathLike[str]) -> Document:
    data, _ = load.read(load.content(Path(source)), file=str(source))
    return {key: value for key, value in data.items() if key != "$schema"}


def _beside(source: str | os.PathLike[str], path: str) -> str:
    """A relative path in a file starts at its folder."""
    if "://" in path or path.startswith(("/", "azureml:", "runs:")):
        return path
    return str((Path(source).absolute().parent / path).resolve())


class Workspace:
    """A workspace, which stands for the server."""

    def __init__(self, name: str | None = None, **_: Any) -> None:
        self.name = self.display_name = name or "allranks"
        self.location = self.resource_group = "here"
        self.description = "a server of allranks"

    @property
    def id(self) -> str:
        """As Azure writes it."""
        return arm_id("", self.resource_group, self.name)

    @property
    def mlflow_tracking_uri(self) -> str:
        """Where MLflow's clients log; sets MLFLOW_TRACKING_TOKEN of this process."""
        return mlflow_tracking_uri()


class ListViewType(StrEnum):
    """Which jobs a list has."""

    ACTIVE_ONLY = "ActiveOnly"
    ARCHIVED_ONLY = "ArchivedOnly"
    ALL = "All"


class JobException(AllranksError):
    """A streamed job has failed."""


class ValidationResult(NamedTuple):
    """What ``jobs.validate`` returns: each problem by the key that it is of."""

    error_messages: Mapping[str, str]

    @property
    def passed(self) -> bool:
        return not self.error_messages


class _Jobs(Jobs):
    """As Azure's: a failed job raises an exception when it is streamed. What was substituted or
    has no effect is said on stderr."""

    def create_or_update(  # type: ignore[override]  # typed for `import`, not by overloads
        self, job: Any, *, skip_validation: bool = False, **keywords: Any
    ) -> Job | builtins.list[Job]:
        made: Job | builtins.list[Job] = super().create_or_update(job, **keywords)
        for each in made if isinstance(made, builtins.list) else [made]:
            submission_notes(each.to_dict(), sys.stderr)
        return made

    def validate(self, job: Any, *, raise_on_failure: bool = False, **_: Any) -> ValidationResult:
        """Check a job as submitting it would. Raises AllranksError only if ``raise_on_failure``."""
        try:
            check(job, None)
        except AllranksError as error:
            if raise_on_failure:
                raise
            problems = getattr(error, "problems", ()) or (Problem(error.message, error.where),)
            return ValidationResult({problem.where or "*": problem.message for problem in problems})
        return ValidationResult({})

    def list(
        self,
        *,
        parent_job_name: str | None = None,
        list_view_type: str = "ActiveOnly",
        **keywords: Any,
    ) -> builtins.list[Job]:
        """Also the children of a job, in the order in which they began."""
        archived = {"All": None, "ArchivedOnly": True}.get(list_view_type, False)
        if parent_job_name is None:
            return super().list(archived=archived, **keywords)
        filters = {"parent": parent_job_name, "archived": "all", "limit": 10_000}
        return [Job(child) for child in find_server.ask(routes.list_jobs, **filters)][::-1]

    def stream(self, name: str, **keywords: Any) -> Job:
        job = super().stream(name, **keywords)
        if job.status == "Failed":
            why = job.error["message"] if job.error else "see its logs"
            hint = job.error["hint"] if job.error else ""
            raise JobException(
                f"the job {name} failed: {why}", hint=hint or f"allranks job logs {name}"
            )
        return job


class _Workspaces:
    """There is one workspace, whatever its name."""

    def get(self, name: str | None = None, **_: Any) -> Workspace:
        return Workspace(name)

    def list(self, **_: Any) -> list[Workspace]:
        return [Workspace()]


_WORKSPACE = ("subscription_id", "resource_group_name", "workspace_name")


class MLClient(Absent, sdk.MLClient):
    """``allranks.MLClient`` with what is Azure's alone."""

    def __init__(self, credential: object = None, *names: Any, **keywords: Any) -> None:
        super().__init__(credential, *names, **keywords)
        self.jobs = _Jobs()
        self.workspaces = _Workspaces()
        for operations in vars(self).values():
            operations.__class__ = with_words(type(operations))
        place = {**dict(zip(_WORKSPACE, names, strict=False)), **keywords}
        self.subscription_id = place.get("subscription_id") or ""
        self.resource_group_name = place.get("resource_group_name") or "here"
        self.workspace_name = place.get("workspace_name") or "allranks"
