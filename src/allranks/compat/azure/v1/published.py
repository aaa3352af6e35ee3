"""`PublishedPipeline`, `Schedule`: pipelines that the server keeps, as schedules with or without
times."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.compat.azure.absent import Absent
from allranks.compat.azure.v1.exceptions import UserErrorException, found, no_more, not_there
from allranks.compat.azure.v1.run import PipelineRun, Run
from allranks.sdk import Client
from allranks.sdk.assets.schedules import JobSchedule
from allranks.sdk.connection import find_server
from allranks.spec.fields.identifiers import matching
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.schedule import ENDPOINT_VERSIONS, ManualTrigger, RecurrenceTrigger

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.schedules import ScheduleAnswer

# Tags of our schedules: the version of a published pipeline, and the pipeline of a schedule.
_VERSION, _PIPELINE = "azureml.version", "azureml.pipeline_id"
# Tags of those that are a `PipelineEndpoint`, beside its versions, or a `PipelineDraft`.
DEFAULT, DRAFT = "azureml.endpoint_default", "azureml.draft"


def literal(value: Any) -> Any:
    """The value of a parameter as a job file has it."""
    return value.data() if hasattr(value, "data") else value


def parameter_values(
    inputs: Mapping[str, Any] | None, values: Mapping[str, Any] | None
) -> Document:
    """The values of parameters, by the names of their inputs. Raises UserErrorException."""
    by_input = {}
    for text, value in (values or {}).items():
        name = matching(text, inputs or ())
        if name is None:
            hint = f"its parameters are: {', '.join(sorted(inputs or ())) or 'none'}"
            raise UserErrorException(f"the pipeline has no parameter {text!r}", hint=hint)
        by_input[name] = literal(value)
    return by_input


class Kept(Absent):
    """A pipeline of the server: ``id``, ``name``, ``description``, ``status``. ``is_used``: this
    program has one."""

    is_used = False

    def __init__(self, workspace: object, answer: ScheduleAnswer) -> None:
        Kept.is_used = True
        self.workspace, self.id = workspace, answer["name"]
        self._show(answer)

    @classmethod
    def get(cls, workspace: object, id: str, **_: Any) -> Any:
        """Raises UserErrorException."""
        with found():
            return cls(workspace, find_server.ask(routes.show_schedule, id))

    def disable(self, **_: Any) -> None:
        """Submit nothing until it is enabled."""
        self._show(find_server.ask(routes.pause_schedule, self.id))

    def enable(self, **_: Any) -> None:
        self._show(find_server.ask(routes.resume_schedule, self.id))

    def _parameters(self, values: Mapping[str, Any] | None) -> Document:
        return parameter_values(self._answer["job"].get("inputs"), values)

    def job(
        self,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool | None = None,
        regenerate_outputs: bool | None = None,
    ) -> Document:
        """Its job with other values of its parameters."""
        job = dict(self._answer["job"])
        if inputs := {**(job.get("inputs") or {}), **self._parameters(pipeline_parameters)}:
            job["inputs"] = inputs
        settings = {
            "continue_on_step_failure": continue_on_step_failure,
            "force_rerun": regenerate_outputs,
        }
        changed = {key: value for key, value in settings.items() if value is not None}
        job["settings"] = {**(job.get("settings") or {}), **changed}
        return job

    def _replace(self, name: str, description: Any, job: Document, tags: dict[str, str]) -> None:
        self._show(create(self.id, name, description, ManualTrigger(), job, tags))

    @property
    def endpoint(self) -> str:
        """Where programs POST what Azure's take: `ExperimentName`, `ParameterAssignments`."""
        with find_server.connect() as client:
            return client.url + routes.run_schedule.url(self.id)

    def _check_active(self) -> None:
        if self.status != "Active":
            raise UserErrorException(f"{self.name} is disabled", hint="enable() it first")

    def _start(self, workspace: object, experiment: str, **request: Any) -> PipelineRun:
        self._check_active()
        body = {"ExperimentName": experiment, **request}
        made = find_server.ask(routes.run_schedule, self.id, body=body)
        return PipelineRun(Run.experiment_type(workspace, experiment), made["Id"])

    def _refresh(self) -> None:
        """Read what other programs have changed."""
        self._show(find_server.ask(routes.show_schedule, self.id))

    def _show(self, answer: ScheduleAnswer) -> None:
        self._answer = answer
        self.name, self.description = answer["display_name"] or self.id, answer["description"]
        self.status = "Active" if answer["enabled"] else "Disabled"

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}(Name: {self.name}, Id: {self.id}, Status: {self.status})"


class PublishedPipeline(Kept):
    """A pipeline without times: ``submit`` it, or POST to its ``endpoint``."""

    # What ``Experiment.submit`` passes on.
    submit_keywords = ("pipeline_parameters", "continue_on_step_failure", "regenerate_outputs")

    @classmethod
    def make(
        cls, workspace: object, job: Document, name: str, description: str | None, version: Any
    ) -> PublishedPipeline:
        tags = {} if version is None else {_VERSION: str(version)}
        answer = create(unique_id(name), name, description, ManualTrigger(), job, tags)
        return cls(workspace, answer)

    @staticmethod
    def list(workspace: object, active_only: bool = True, **_: Any) -> Sequence[PublishedPipeline]:
        several = (PublishedPipeline(workspace, answer) for answer in every("manual"))
        return [one for one in several if not active_only or one.status == "Active"]

    @property
    def version(self) -> str | None:
        return self._answer["tags"].get(_VERSION)

    def submit(
        self,
        workspace: Any,
        experiment_name: str,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool | None = None,
        regenerate_outputs: bool | None = None,
        **more: Any,
    ) -> PipelineRun:
        """Raises UserErrorException."""
        no_more("PublishedPipeline.submit", more)
        return self._start(
            workspace,
            experiment_name,
            ParameterAssignments=self._parameters(pipeline_parameters),
            ContinueRunOnStepFailure=continue_on_step_failure,
            RegenerateOutputs=regenerate_outputs,
        )


class ScheduleRecurrence:
    """Every ``interval`` minutes, hours, days, weeks or months."""

    def __init__(
        self,
        frequency: str,
        interval: int,
        start_time: datetime | str | None = None,
        time_zone: str | None = None,
        hours: Sequence[int] | None = None,
        minutes: Sequence[int] | None = None,
        week_days: Sequence[str] | None = None,
        time_of_day: str | None = None,
    ) -> None:
        self.frequency, self.interval = frequency, interval
        self.start_time, self.time_zone = start_time, time_zone
        self.hours, self.minutes, self.week_days = hours, minutes, week_days
        if time_of_day is not None:
            hour, _, minute = time_of_day.partition(":")
            self.hours, self.minutes = [int(hour)], [int(minute or 0)]

    def trigger(self) -> RecurrenceTrigger:
        start = self.start_time
        keys = {
            "frequency": self.frequency.lower(),
            "interval": self.interval,
            "start_time": start.isoformat() if isinstance(start, datetime) else start,
            "time_zone": self.time_zone or "UTC",
        }
        times = {"hours": self.hours, "minutes": self.minutes, "weekdays": self.week_days}
        if any(times.values()):
            keys["schedule"] = {key: value for key, value in times.items() if value}
        return RecurrenceTrigger.model_validate(keys)


class Schedule(Kept):
    """A published pipeline that is submitted at set times."""

    @staticmethod
    def create(
        workspace: object,
        name: str,
        pipeline_id: str,
        experiment_name: str,
        recurrence: ScheduleRecurrence | None = None,
        description: str | None = None,
        pipeline_parameters: Mapping[str, Any] | None = None,
        wait_for_provisioning: bool = False,
        wait_timeout: int = 3600,
        **more: Any,
    ) -> Schedule:
        if more.pop("datastore", None) is not None or recurrence is None:
            not_there("a Schedule that watches a datastore", "give a recurrence")
        no_more("Schedule.create", more)
        published = PublishedPipeline.get(workspace, pipeline_id)
        job = {**published.job(pipeline_parameters), "experiment_name": experiment_name}
        tags = {_PIPELINE: pipeline_id}
        answer = create(unique_id(name), name, description, recurrence.trigger(), job, tags)
        return Schedule(workspace, answer)

    @staticmethod
    def list(
        workspace: object, active_only: bool = True, pipeline_id: str | None = None, **_: Any
    ) -> Sequence[Schedule]:
        several = (Schedule(workspace, answer) for answer in every("recurrence", "cron"))
        return [
            one
            for one in several
            if (not active_only or one.status == "Active")
            and pipeline_id in (None, one.pipeline_id)
        ]

    @property
    def pipeline_id(self) -> str | None:
        return self._answer["tags"].get(_PIPELINE)

    @property
    def recurrence(self) -> ScheduleRecurrence | None:
        trigger = self._answer["trigger"]
        if trigger["type"] != "recurrence":
            return None
        times: Any = trigger.get("schedule") or {}
        return ScheduleRecurrence(
            trigger["frequency"].capitalize(),
            trigger["interval"],
            trigger.get("start_time"),
            trigger["time_zone"],
            times.get("hours"),
            times.get("minutes"),
            times.get("weekdays"),
        )

    def update(
        self,
        name: str | None = None,
        description: str | None = None,
        recurrence: ScheduleRecurrence | None = None,
        pipeline_parameters: Mapping[str, Any] | None = None,
        status: str | None = None,
        wait_for_provisioning: bool = False,
        wait_timeout: int = 3600,
        **more: Any,
    ) -> None:
        """Change it: the times count from now."""
        no_more("Schedule.update", more)
        chosen = recurrence or self.recurrence
        if chosen is None:
            not_there("the update of a cron schedule", "allranks schedule create -f FILE")
        active = (status or self.status) == "Active"
        self._show(
            create(
                self.id,
                name=name or self.name,
                description=description or self.description,
                trigger=chosen.trigger(),
                job=self.job(pipeline_parameters),
                tags=dict(self._answer["tags"]),
            )
        )
        if not active:
            self.disable()

    def get_last_pipeline_run(self) -> PipelineRun | None:
        answer = find_server.ask(routes.show_schedule, self.id)
        job = answer["last_job"]
        return None if job is None else Run.get(self.workspace, job)  # type: ignore[return-value]


def unique_id(name: str) -> str:
    """A name of the server's for one that need not be unique."""
    return f"{re.sub('[^A-Za-z0-9_.-]+', '-', name).strip('._-') or 'p'}-{uuid.uuid4().hex[:8]}"


def published(workspace: Any, pipeline: Any, name: str) -> PublishedPipeline:
    """A Pipeline as published; a PublishedPipeline is that."""
    if isinstance(pipeline, PublishedPipeline):
        return pipeline
    made: PublishedPipeline = pipeline.publish(name=name)
    return made


def every(*kinds: str, marked: Sequence[str] = ()) -> Iterator[ScheduleAnswer]:
    """The schedules of pipelines with these triggers, the oldest first; ``marked``: those
    that are endpoints, or drafts."""
    answers = find_server.ask(routes.list_schedules)
    for answer in sorted(answers, key=lambda answer: answer["created_at"]):
        marks = {ENDPOINT_VERSIONS, DRAFT} & answer["tags"].keys()
        if (
            answer["type"] == "pipeline"
            and marks == {*marked}
            and answer["trigger"]["type"] in kinds
        ):
            yield answer


def create(
    id: str,
    name: str,
    description: str | None,
    trigger: ManualTrigger | RecurrenceTrigger,
    job: Document,
    tags: dict[str, str],
) -> ScheduleAnswer:
    """Create a schedule, or replace it."""
    made = JobSchedule(
        name=id,
        trigger=trigger,
        create_job=PipelineJob.parse(job),
        display_name=name,
        description=description,
        tags=tags,
    )
    Client().schedules.begin_create_or_update(made)
    return find_server.ask(routes.show_schedule, id)
