"""Schedules: what ``/schedules`` answers."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from allranks.api.common import Document


class RecurrencePattern(TypedDict, total=False):
    hours: list[int]
    minutes: list[int]
    weekdays: list[str]
    month_days: list[int]


class TriggerAnswer(TypedDict):
    """When a schedule submits its job. ``expression`` is that of a cron trigger; the keys after it
    are those of a recurrence."""

    type: str
    start_time: NotRequired[str]
    end_time: NotRequired[str]
    time_zone: str
    expression: NotRequired[str]
    frequency: NotRequired[str]
    interval: NotRequired[int]
    schedule: NotRequired[RecurrencePattern]


class RunAnswer(TypedDict):
    """A job that was submitted, by Azure's key; ``notes`` say what had no effect."""

    Id: str
    notes: list[str]


class ScheduleAnswer(TypedDict):
    """A schedule. ``job`` is the specification of its job; the keys ``last_…`` and ``missed`` say
    what its last time brought."""

    name: str
    display_name: str | None
    description: str | None
    tags: dict[str, str]
    trigger: TriggerAnswer
    catch_up: bool
    type: str
    job: Document
    enabled: bool
    created_by: str
    created_at: str
    next_at: str | None
    last_at: str | None
    last_job: str | None
    last_error: str | None
    missed: int
    last_missed_at: str | None
