"""Schedules, for Python programs."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from allranks.api import routes
from allranks.errors import Conflict, UsageError
from allranks.sdk.assets.computes import Poller
from allranks.sdk.connection import find_server
from allranks.sdk.submit.nodes import Section
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.send import send
from allranks.spec.any_job import AnyJob, parse_any
from allranks.spec.schedule import Schedule, Trigger, parse_schedule

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.schedules import ScheduleAnswer


class JobSchedule:
    """A job and when it is submitted. Keys of ``allranks schedule show`` are attributes once it is
    created."""

    def __init__(
        self,
        *,
        name: str,
        trigger: Trigger,
        create_job: AnyJob,
        display_name: str | None = None,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        properties: dict[str, str] | None = None,
    ) -> None:
        self.name, self.create_job = name, create_job
        keys = {
            "name": name,
            "trigger": trigger.model_dump(mode="json", exclude_none=True),
            "create_job": create_job.to_dict(),
            "display_name": display_name,
            "description": description,
            "tags": tags,
            "properties": properties,
        }
        self.spec: Schedule = parse_schedule({k: v for k, v in keys.items() if v is not None})

    @property
    def trigger(self) -> Trigger:
        return self.spec.trigger


class ScheduleRecord:
    """A schedule as the server has it: ``name``, ``is_enabled``, and the keys of `schedule show` as
    attributes. Those and ``create_job`` may be changed, and the record be created again."""

    def __init__(self, record: ScheduleAnswer, job: AnyJob | None = None) -> None:
        keys: Document = {
            key: Section(e) if isinstance(e, dict) else e for key, e in record.items()
        }
        vars(self).update(_record=keys, _job=job)

    @property
    def create_job(self) -> AnyJob:
        """The job that it was created with; of another program the server's."""
        job: AnyJob = self._job or parse_any(self._record["job"])
        return job

    @property
    def is_enabled(self) -> bool:
        return bool(self._record["enabled"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._record:
            raise AttributeError(name)
        return self._record[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "create_job":
            vars(self)["_job"] = value
        elif name in ("trigger", "display_name", "description", "tags"):
            self._record[name] = value
        else:
            hint = "create_job, trigger, display_name, description and tags can be changed"
            raise UsageError(f"{name} of a schedule does not change", hint=hint)

    @property
    def spec(self) -> Schedule:
        """What it is created of. Raises SpecError."""
        keys = ("name", "trigger", "display_name", "description", "tags", "catch_up")
        made = {key: getattr(self, key) for key in keys}
        if isinstance(self.trigger, BaseModel):
            made["trigger"] = self.trigger.model_dump(mode="json", exclude_none=True)
        return parse_schedule({**made, "create_job": self.create_job.to_dict()})

    def __repr__(self) -> str:
        return f"Schedule(name={self.name!r}, is_enabled={self.is_enabled})"


class Schedules:
    """Operations on schedules. All raise AllranksError with a hint."""

    def begin_create_or_update(self, schedule: Any) -> Poller[ScheduleRecord]:
        """Create a ``JobSchedule``, in the place of one with its name; its code and environment
        are those of now. A schedule of the server that was changed takes its own place."""
        job = schedule.create_job
        submission, snapshots = prepare(job.to_dict(), Path(job.base or ".").absolute())
        submission["spec"].pop("name", None)
        body = {"schedule": schedule.spec.to_dict(), "submission": submission}
        with find_server.connect() as client:
            try:
                made = send(client, body, snapshots, to=routes.create_schedule.at())
            except Conflict:
                client.ask(routes.delete_schedule, schedule.name)
                made = send(client, body, snapshots, to=routes.create_schedule.at())
        if isinstance(schedule, ScheduleRecord) and not schedule.is_enabled:
            return self.begin_disable(schedule.name)
        return Poller(ScheduleRecord(made, job))

    def get(self, name: str) -> ScheduleRecord:
        return ScheduleRecord(find_server.ask(routes.show_schedule, name))

    def list(self, **_: object) -> builtins.list[ScheduleRecord]:
        return [ScheduleRecord(each) for each in find_server.ask(routes.list_schedules)]

    def begin_disable(self, name: str) -> Poller[ScheduleRecord]:
        """Submit no jobs until it is enabled."""
        return Poller(ScheduleRecord(find_server.ask(routes.pause_schedule, name)))

    def begin_enable(self, name: str) -> Poller[ScheduleRecord]:
        """Submit jobs again."""
        return Poller(ScheduleRecord(find_server.ask(routes.resume_schedule, name)))

    def begin_delete(self, name: str) -> Poller[None]:
        """Delete it; jobs that it submitted stay."""
        find_server.ask(routes.delete_schedule, name)
        return Poller(None)
