"""Routes for schedules."""

from __future__ import annotations

from datetime import UTC, datetime

from allranks.api.schedules import RunAnswer, ScheduleAnswer
from allranks.errors import Conflict, SpecError, UsageError
from allranks.server.auth.roles import Person, Who, require_own
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.loop.subscriptions import Change
from allranks.server.schedules.create import create_schedule, shown
from allranks.server.schedules.loop import resumed_at, submit_at
from allranks.server.schedules.requests import version_of, with_values
from allranks.server.submission.submit import NO_SUBMISSION
from allranks.store.schedules import ScheduleRow


def list_schedules(services: ServicesDep) -> list[ScheduleAnswer]:
    return [shown(row) for row in services.schedules.list()]


def create(data: JsonBody, services: ServicesDep, who: Who) -> ScheduleAnswer:
    """Create a schedule: ``schedule`` is its spec, ``submission`` its job."""
    spec = data.get("schedule")
    submission = data.get("submission")
    if not isinstance(spec, dict) or not isinstance(submission, dict):
        raise SpecError(NO_SUBMISSION)
    row = create_schedule(spec, submission, services, who.name)
    services.subscriptions.publish(Change.SCHEDULE)
    return shown(row)


def show(name: str, services: ServicesDep) -> ScheduleAnswer:
    return shown(services.schedules.get(name))


def pause(name: str, services: ServicesDep, who: Who) -> ScheduleAnswer:
    """Submit no jobs until it is resumed. Idempotent."""
    require_own(who, name, services.schedules.get(name).created_by)
    return shown(services.schedules.change(name, enabled=0))


def resume(name: str, services: ServicesDep, who: Who) -> ScheduleAnswer:
    """Submit jobs again, from the next time on. Idempotent."""
    row = services.schedules.get(name)
    require_own(who, name, row.created_by)
    if not row.enabled:
        row = services.schedules.change(name, enabled=1, next_at=resumed_at(row))
        services.subscriptions.publish(Change.SCHEDULE)
    return shown(row)


def trigger(name: str, services: ServicesDep, who: Who) -> ScheduleAnswer:
    """Submit its job now, whatever its times. The answer's ``last_job`` names it, or
    ``last_error`` says why there is none."""
    row = services.schedules.get(name)
    require_own(who, name, row.created_by)
    last = submit_at(services, row, datetime.now(UTC), planned=False)
    return shown(services.schedules.change(name, last=last))


def run(
    name: str,
    data: JsonBody,
    services: ServicesDep,
    who: Who,
    by: str = "",
    pipelineVersion: str = "",  # Azure's name
) -> RunAnswer:
    """Submit its job now with other values, as Azure ML's first SDK asks its published pipelines:
    ``ExperimentName``, ``ParameterAssignments``, ``DataPathAssignments``. Of a pipeline endpoint
    ``pipelineVersion``, or what ends ``by``, names a version."""
    row = _runnable(name, services, who)
    version = version_of(row, pipelineVersion or by.partition("/")[2].partition("/")[2])
    if version:
        # The list of versions is a text that may name schedules of others: the job is theirs.
        row = _runnable(version, services, who)
    spec, notes = with_values(row.submission["spec"], data)
    changed = row._replace(submission={**row.submission, "spec": spec})
    last = submit_at(services, changed, datetime.now(UTC), planned=False)
    services.schedules.change(name, last=last)
    if last["job"] is None:
        raise UsageError(str(last["error"]), hint="check ParameterAssignments")
    return {"Id": str(last["job"]), "notes": notes}


def _runnable(name: str, services: Services, who: Person) -> ScheduleRow:
    row = services.schedules.get(name)
    require_own(who, name, row.created_by)
    if not row.enabled:
        raise Conflict(f"{name} is paused", hint=f"allranks schedule resume {name}")
    return row


def delete(name: str, services: ServicesDep, who: Who) -> ScheduleAnswer:
    """Delete a schedule; jobs that it submitted stay."""
    row = services.schedules.get(name)
    require_own(who, name, row.created_by)
    services.schedules.delete(name)
    return shown(row)
