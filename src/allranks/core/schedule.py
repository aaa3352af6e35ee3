"""The times of a schedule. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from allranks.spec.schedule import (
    CronTrigger,
    ManualTrigger,
    RecurrencePattern,
    RecurrenceTrigger,
    Trigger,
    moment,
    zone,
)

# A schedule without a time in so many years has none.
_YEARS = 30
_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_WEEKDAYS = {"monday": 1, "tuesday": 2, "wednesday": 3, "thursday": 4, "friday": 5, "saturday": 6}
# A time that is this much past when the server notices was not missed.
_PUNCTUAL = timedelta(seconds=60)
# Missed times that are counted.
_MOST = 1000


def next_time(trigger: Trigger, after: datetime, created: datetime) -> datetime | None:
    """The first time after ``after``, None if there is none; ``created`` is the start of a schedule
    that names none. With time zones, as are the results.

    Times that a day lacks when clocks go forward are at the next valid time; those that it has
    twice when they go back count once, except of `*` and of minutes and hours.
    """
    if isinstance(trigger, ManualTrigger):
        return None
    local = zone(trigger.time_zone)
    start = moment(trigger.start_time, trigger.time_zone) if trigger.start_time else created
    start = start.astimezone(local)
    # In UTC: Python compares times of one zone by their clocks, which may go back.
    least = max(after.astimezone(UTC), start.astimezone(UTC) - timedelta(microseconds=1))
    time = _first(trigger, start, least.astimezone(local))
    if time is None:
        return None
    if trigger.end_time and time > moment(trigger.end_time, trigger.time_zone):
        return None
    return time


class Due(NamedTuple):
    """What to do at a moment: submit the job for the time ``run`` (None: not), and wait until
    ``following``. ``missed`` times passed without a job, the last of them was ``last_missed``."""

    run: datetime | None
    following: datetime | None
    missed: int = 0
    last_missed: datetime | None = None


def due(
    trigger: Trigger,
    planned: datetime,
    now: datetime,
    created: datetime,
    *,
    catch_up: bool,
) -> Due:
    """What is due at ``now`` of a schedule that waits until ``planned``."""
    times: list[datetime] = []
    at: datetime | None = planned
    while at is not None and at <= now and len(times) < _MOST:
        times.append(at)
        at = next_time(trigger, at, created)
    if at is not None and at <= now:
        at = next_time(trigger, now, created)
    if not times:
        return Due(None, at)
    run = times[-1] if catch_up or now - times[-1] <= _PUNCTUAL else None
    missed = times if run is None else times[:-1]
    return Due(run, at, len(missed), missed[-1] if missed else None)


def _first(
    trigger: CronTrigger | RecurrenceTrigger, start: datetime, after: datetime
) -> datetime | None:
    if isinstance(trigger, CronTrigger):
        return next(_matching(trigger.expression, after), None)
    if trigger.frequency in _UNITS:
        # Real time: an hour is an hour, also when clocks change.
        step = _UNITS[trigger.frequency] * trigger.interval
        passed = after.astimezone(UTC) - start.astimezone(UTC)
        count = max(0, passed // step + 1)
        return (start.astimezone(UTC) + count * step).astimezone(start.tzinfo)
    times = _matching(_expression(trigger, start), after)
    return next((time for time in times if _is_turn(trigger, start, time)), None)


def _matching(expression: str, after: datetime) -> Iterator[datetime]:
    """The times after ``after`` that match a cron expression, for some years."""
    from cronsim import CronSim  # lazy: only schedules need it

    last = after + timedelta(days=365 * _YEARS)
    for time in CronSim(expression, after):
        if time > last:
            return
        if time.astimezone(UTC) > after.astimezone(UTC):
            yield time


def _expression(trigger: RecurrenceTrigger, start: datetime) -> str:
    """The cron expression of a recurrence's times of day and days."""
    pattern = trigger.schedule or RecurrencePattern()
    hours = pattern.hours or [start.hour]
    minutes = pattern.minutes or ([0] if pattern.hours else [start.minute])
    days, weekdays = "*", "*"
    if trigger.frequency == "month":
        days = _listed(pattern.month_days or [start.day])
    if trigger.frequency == "week":
        named = [_WEEKDAYS.get(day, 0) for day in pattern.weekdays or ()]
        weekdays = _listed(named or [start.isoweekday() % 7])
    return f"{_listed(minutes)} {_listed(hours)} {days} * {weekdays}"


def _listed(numbers: list[int]) -> str:
    return ",".join(map(str, sorted({*numbers})))


def _is_turn(trigger: RecurrenceTrigger, start: datetime, at: datetime) -> bool:
    """Whether the day, week or month of a time is one of every ``interval``."""
    days = (at.date() - start.date()).days
    if trigger.frequency == "week":
        monday = start.date() - timedelta(days=start.weekday())
        passed = (at.date() - monday).days // 7
    elif trigger.frequency == "month":
        passed = (at.year - start.year) * 12 + at.month - start.month
    else:
        passed = days
    return passed % trigger.interval == 0
