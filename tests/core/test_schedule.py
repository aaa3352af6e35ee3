"""The times of schedules: zones, clocks that change, recurrences, missed times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.schedule import Due, due, next_time
from allranks.errors import SpecError
from allranks.spec.schedule import CronTrigger, RecurrenceTrigger, parse_schedule

BERLIN = "Europe/Berlin"
SPRING = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo(BERLIN))
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=ZoneInfo(BERLIN))
MAY = datetime(2026, 5, 1, 10, 17, tzinfo=UTC)


def trigger(**keys: Any) -> CronTrigger | RecurrenceTrigger:
    return parse_schedule({"name": "s", "create_job": "job.yml", "trigger": keys}).trigger


def cron(expression: str, **keys: Any) -> CronTrigger | RecurrenceTrigger:
    return trigger(type="cron", expression=expression, **keys)


def every(frequency: str, **keys: Any) -> CronTrigger | RecurrenceTrigger:
    return trigger(type="recurrence", frequency=frequency, **keys)


def times(of: CronTrigger | RecurrenceTrigger, after: datetime, count: int) -> list[str]:
    found: list[str] = []
    at: datetime | None = after
    while at is not None and len(found) < count:
        at = next_time(of, at, after)
        found += [at.isoformat()] if at is not None else []
    return found


@pytest.mark.parametrize(
    ("of", "after", "expected"),
    [
        (
            cron("30 4 * * 1-5"),
            MAY,
            ["2026-05-04T04:30:00+00:00", "2026-05-05T04:30:00+00:00"],
        ),
        # 02:30 does not exist on 29 March in Berlin, and exists twice on 25 October.
        (
            cron("30 2 * * *", time_zone=BERLIN),
            SPRING,
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ),
        (
            cron("30 2 * * *", time_zone=BERLIN),
            AUTUMN,
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        ),
        (
            every("hour", time_zone=BERLIN, start_time="2026-03-29T00:15:00"),
            SPRING,
            [
                "2026-03-29T00:15:00+01:00",
                "2026-03-29T01:15:00+01:00",
                "2026-03-29T03:15:00+02:00",
            ],
        ),
        (
            every("hour", time_zone=BERLIN, start_time="2026-10-25T01:15:00"),
            AUTUMN,
            [
                "2026-10-25T01:15:00+02:00",
                "2026-10-25T02:15:00+02:00",
                "2026-10-25T02:15:00+01:00",
                "2026-10-25T03:15:00+01:00",
            ],
        ),
        (
            every("minute", interval=15, start_time="2026-05-01T10:00:00Z"),
            MAY,
            ["2026-05-01T10:30:00+00:00", "2026-05-01T10:45:00+00:00"],
        ),
        (every("day"), MAY, ["2026-05-01T10:17:00+00:00"]),
        (
            every("day", interval=2, schedule={"hours": [4, 5], "minutes": [0, 30]}),
            MAY,
            [
                *("2026-05-03T04:00:00+00:00", "2026-05-03T04:30:00+00:00"),
                *("2026-05-03T05:00:00+00:00", "2026-05-03T05:30:00+00:00"),
                "2026-05-05T04:00:00+00:00",
            ],
        ),
        (
            every("week", interval=2, schedule={"hours": 8, "weekdays": ["Monday", "sunday"]}),
            MAY,
            [
                *("2026-05-03T08:00:00+00:00", "2026-05-11T08:00:00+00:00"),
                *("2026-05-17T08:00:00+00:00", "2026-05-25T08:00:00+00:00"),
            ],
        ),
        (
            every("month", schedule={"hours": 8, "minutes": 5, "month_days": [31]}),
            MAY,
            ["2026-05-31T08:05:00+00:00", "2026-07-31T08:05:00+00:00"],
        ),
        (
            every("day", time_zone="Pacific Standard Time", schedule={"hours": 4}),
            MAY,
            ["2026-05-01T04:00:00-07:00", "2026-05-02T04:00:00-07:00"],
        ),
        (
            cron("0 0 * * *", start_time="2026-06-01T12:00", end_time="2026-06-03T00:00"),
            MAY,
            ["2026-06-02T00:00:00+00:00", "2026-06-03T00:00:00+00:00"],
        ),
        (cron("0 0 * * *", end_time="2026-05-01T12:00"), MAY, []),
    ],
)
def test_times(of, after: datetime, expected: list[str]):
    found = times(of, after, len(expected) or 1)
    if of.time_zone == "UTC" and expected and expected[0] == MAY.isoformat():
        found = [next_time(of, MAY - timedelta(seconds=1), MAY).isoformat()]
    assert found == expected


TRIGGERS = st.one_of(
    st.sampled_from([cron("*/7 * * * *"), cron("30 2 * * *"), cron("0 12 1 * *")]),
    st.builds(
        lambda frequency, interval: every(frequency, interval=interval, time_zone=BERLIN),
        st.sampled_from(["minute", "hour", "day", "week", "month"]),
        st.integers(1, 5),
    ),
)
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))


@given(TRIGGERS, MOMENTS, MOMENTS)
def test_times_go_on(of, after, created):
    first = next_time(of, after, created)
    assert first is not None
    assert first.astimezone(UTC) > after
    second = next_time(of, first, created)
    assert second is not None
    assert second.astimezone(UTC) > first.astimezone(UTC)
    # Nothing lies between: whoever asks a little later gets the same.
    between = after + (first.astimezone(UTC) - after) / 2
    assert next_time(of, between, created) == first


@pytest.mark.medium
@given(TRIGGERS, MOMENTS, st.timedeltas(timedelta(), timedelta(days=3)), st.booleans())
def test_what_is_due_counts_every_time_once(of, planned, late, catch_up):
    planned = next_time(of, planned, planned)
    now = planned.astimezone(UTC) + late
    found = due(of, planned, now, planned, catch_up=catch_up)
    assert found.following is None or found.following.astimezone(UTC) > now
    passed, at = 0, planned
    while at.astimezone(UTC) <= now and passed < 1000:
        passed, at = passed + 1, next_time(of, at, planned)
    assert found.missed + (found.run is not None) == passed
    assert found.run is not None or not catch_up


def test_a_late_time_is_missed_and_made_up_for_once():
    of, hour = every("hour", start_time="2026-05-01T00:00:00Z"), timedelta(hours=1)
    start = datetime(2026, 5, 1, tzinfo=UTC)
    late = start + 3 * hour + timedelta(minutes=10)
    following = start + 4 * hour
    assert due(of, start, late, start, catch_up=False) == Due(None, following, 4, start + 3 * hour)
    assert due(of, start, late, start, catch_up=True) == Due(
        start + 3 * hour, following, 3, start + 2 * hour
    )
    soon = start + timedelta(seconds=30)
    assert due(of, start, soon, start, catch_up=False) == Due(start, start + hour)
    assert due(of, following, soon, start, catch_up=True) == Due(None, following)


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"type": "cron", "expression": "61 * * * *"}, "trigger.expression"),
        ({"type": "cron", "expression": "* * * * * *"}, "trigger.expression"),
        ({"type": "cron"}, "trigger.expression"),
        ({"type": "cron", "expression": "* * * * *", "time_zone": "Mars"}, "trigger.time_zone"),
        ({"type": "cron", "expression": "* * * * *", "start_time": "soon"}, "trigger.start_time"),
        (
            {
                "type": "cron",
                "expression": "* * * * *",
                "start_time": "2026-02-01T00:00",
                "end_time": "2026-01-01T00:00",
            },
            "trigger.end_time",
        ),
        ({"type": "recurrence", "frequency": "year"}, "trigger.frequency"),
        ({"type": "recurrence", "frequency": "day", "interval": 0}, "trigger.interval"),
        (
            {"type": "recurrence", "frequency": "day", "schedule": {"hours": 24}},
            "trigger.schedule.hours",
        ),
        (
            {"type": "recurrence", "frequency": "day", "schedule": {"weekdays": "monday"}},
            "trigger.schedule.weekdays",
        ),
        (
            {"type": "recurrence", "frequency": "hour", "schedule": {"minutes": 5}},
            "trigger.schedule",
        ),
        ({"expression": "* * * * *"}, "trigger.type"),
        ({"type": "manual", "end_time": "2026-01-01T00:00"}, "trigger"),
        ({"type": "manual", "time_zone": "Europe/Berlin"}, "trigger"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(keys, where):
    with pytest.raises(SpecError) as caught:
        trigger(**keys)
    assert [each.where for each in caught.value.problems] == [where]
    assert caught.value.problems[0].hint
