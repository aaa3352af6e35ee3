"""Submits the jobs of schedules."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from allranks.api.routes import Role
from allranks.errors import AllranksError, Conflict, Forbidden
from allranks.server.dependencies import Services
from allranks.server.loop.subscriptions import Change
from allranks.server.submission.submit import Submission, submit
from allranks.server.worker import Worker
from allranks.spec.job_type import job_type
from allranks.store.jobs.job_rows import COMMAND
from allranks.store.schedules import ScheduleRow

log = logging.getLogger("allranks.schedules")

# Seconds between two looks at most: clocks are set and machines sleep.
_LOOK = 20.0


class ScheduleLoop(Worker):
    """Submits what is due."""

    def __init__(self, services: Services) -> None:
        super().__init__("schedules", retry=_LOOK)
        self._services = services
        services.subscriptions.subscribe(Change.SCHEDULE, self.wake)

    def look(self, names: set[str]) -> float | None:
        rows = [each for each in self._services.schedules.list() if each.enabled and each.next_at]
        if not rows:
            return None
        now = datetime.now(UTC)
        for row in rows:
            if row.next_at is not None and row.next_at <= now.timestamp():
                self._try(row, now)
        waiting = [e.next_at for e in self._services.schedules.list() if e.enabled and e.next_at]
        soonest = min(waiting, default=None)
        if soonest is None:
            return None
        return min(_LOOK, max(0.0, soonest - datetime.now(UTC).timestamp()))

    def _try(self, row: ScheduleRow, now: datetime) -> None:
        """An error of one schedule keeps no other from its job."""
        try:
            self._take(row, now)
        except Exception:
            log.exception("%s: failed; retrying in %g s", row.name, _LOOK)

    def _take(self, row: ScheduleRow, now: datetime) -> None:
        """Submit the job of a schedule, and record the time that follows."""
        from allranks.core.schedule import due  # lazy: most homes have no schedules
        from allranks.server.schedules.create import parse  # lazy: as above

        schedule = parse(row)
        planned = datetime.fromtimestamp(row.next_at or 0.0, UTC)
        created = datetime.fromtimestamp(row.created_at, UTC)
        timing = due(schedule.trigger, planned, now, created, catch_up=schedule.catch_up)
        last: dict[str, Any] = {}
        if timing.missed:
            last["missed"] = (row.last or {}).get("missed", 0) + timing.missed
            last["missed_at"] = timing.last_missed.timestamp() if timing.last_missed else None
            log.warning("%s: %d times were missed", row.name, timing.missed)
        if timing.run is not None:
            last |= submit_at(self._services, row, timing.run, planned=True)
        following = timing.following.timestamp() if timing.following else None
        self._services.schedules.change(row.name, next_at=following, last=last)


def submit_at(
    services: Services, row: ScheduleRow, moment: datetime, *, planned: bool
) -> dict[str, object]:
    """What the submission brought. The name of the job says its time, so that a server that is
    killed in between submits a planned one once; others have microseconds, too."""
    at = moment.astimezone(UTC)
    name = f"{row.name}_{at:%Y%m%dT%H%M%SZ}"
    if not planned:
        name += f"-{at:%f}"
    outcome = {"at": at.timestamp(), "job": name, "error": None}
    made = Submission.load(row.submission)
    properties = {**(made.spec.get("properties") or {}), "allranks.schedule": row.name}
    spec = {**made.spec, "name": name, "properties": properties}
    made = made._replace(spec=spec)
    try:
        if planned:
            _require_member(row.created_by, services)
        if job_type(spec) == COMMAND:
            submit(made, services, row.created_by)
        else:
            from allranks.server.parents.submit import create_parent  # lazy: few are parents

            create_parent(made, services, row.created_by)
    except Conflict as error:
        if not planned or error.where != "name":
            return {**outcome, "job": None, "error": str(error)}
    except AllranksError as error:
        log.warning("%s: %s", row.name, error)
        return {**outcome, "job": None, "error": str(error)}
    return outcome


def _require_member(name: str, services: Services) -> None:
    """Raises Forbidden if the maker of a schedule may not submit a job now."""
    if (services.auth.tokens.role(name) or Role.READER) < Role.MEMBER:
        raise Forbidden(
            f"{name!r}, who made the schedule, may not submit jobs now",
            hint=f"create a token for them (allranks server token create {name}), or the schedule "
            "as somebody else",
        )


def resumed_at(row: ScheduleRow) -> float | None:
    """The next time of a schedule that is resumed now: times while it was paused do not count."""
    from allranks.core.schedule import next_time  # lazy: most homes have no schedules
    from allranks.server.schedules.create import parse  # lazy: as above

    created = datetime.fromtimestamp(row.created_at, UTC)
    following = next_time(parse(row).trigger, datetime.now(UTC), created)
    return following.timestamp() if following else None
