"""Create schedules, and show them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from allranks.core.schedule import next_time
from allranks.errors import MissingCode
from allranks.masking import all_without_credentials
from allranks.server.dependencies import Services
from allranks.server.parents.check import check
from allranks.server.submission.submit import Submission
from allranks.server.timestamps import iso_time
from allranks.spec.fields.problems import below
from allranks.spec.job_type import job_type
from allranks.spec.schedule import Schedule, parse_schedule
from allranks.store.jobs.job_rows import snapshots
from allranks.store.schedules import ScheduleRow

if TYPE_CHECKING:
    from allranks.api.schedules import ScheduleAnswer, TriggerAnswer


def create_schedule(
    spec: Mapping[str, Any], submission: Mapping[str, Any], services: Services, by: str
) -> ScheduleRow:
    """Record a schedule whose job is checked as it will be at its first time. Raises SpecError for
    the job's keys below ``create_job``, Refused, MissingCode, and Conflict for a taken name."""
    schedule = parse_schedule(spec)
    now = datetime.now(UTC)
    made = Submission.load(submission)
    with below("create_job"):
        check(made._replace(spec={**made.spec, "name": schedule.name}), services.planning())
    first = next_time(schedule.trigger, now, now)
    with services.admission_lock:
        if not all(map(services.blobs.is_complete, codes_of(submission))):
            raise MissingCode("the code has not been uploaded yet", hint="upload it first")
        row = ScheduleRow(
            schedule.name,
            dict(spec),
            dict(submission),
            time.time(),
            by,
            True,
            first.timestamp() if first else None,
            None,
        )
        services.schedules.create(row)
    return row


def codes_of(submission: Mapping[str, Any]) -> set[str]:
    """The digests of all code of a submission."""
    own = {submission["code"]} if submission.get("code") else set()
    return own | {*snapshots(submission["spec"])}


def shown(row: ScheduleRow) -> ScheduleAnswer:
    """A schedule as the API and ``--json`` show it."""
    schedule = parse(row)
    last = row.last or {}
    trigger = schedule.trigger.model_dump(mode="json", exclude_none=True)
    return {
        "name": row.name,
        "display_name": schedule.display_name,
        "description": schedule.description,
        "tags": dict(schedule.tags),
        "trigger": cast("TriggerAnswer", trigger),
        "catch_up": schedule.catch_up,
        "type": job_type(row.submission["spec"]),
        "job": all_without_credentials(row.submission["spec"]),
        "enabled": row.enabled,
        "created_by": row.created_by,
        "created_at": iso_time(row.created_at),
        "next_at": iso_time(row.next_at) if row.enabled else None,
        "last_at": iso_time(last.get("at")),
        "last_job": last.get("job"),
        "last_error": last.get("error"),
        "missed": last.get("missed", 0),
        "last_missed_at": iso_time(last.get("missed_at")),
    }


def parse(row: ScheduleRow) -> Schedule:
    """The schedule of a row."""
    return parse_schedule(row.spec)
