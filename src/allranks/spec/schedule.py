"""Schedules: when a job is submitted again and again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, datetime, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
)

from allranks.errors import Problem
from allranks.spec.base_job import BaseJob
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import validated, without_none
from allranks.spec.fields.scalars import Count, Integer, Name, Text, Texts, Wrong, sendable
from allranks.spec.job_parts import snake, typed


def zone(name: str) -> tzinfo:
    """The time zone of a name, IANA's or Windows' (Azure ML's). Raises Wrong."""
    from tzlocal.windows_tz import win_tz  # lazy: only schedules have zones

    try:
        return ZoneInfo(win_tz.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Wrong(f"`{name}` is not a time zone", "as in Europe/Berlin or UTC") from None


def _zone(value: str) -> str:
    zone(value)
    return value


def _moment(value: str) -> str:
    try:
        # At the calendar's ends there is no such time in other zones.
        if MINYEAR < datetime.fromisoformat(value).year < MAXYEAR:
            return value
    except ValueError:
        pass
    raise Wrong(f"`{value}` is not a time", "as in 2026-11-23T08:30:00")


def _several(value: object) -> object:
    return value if isinstance(value, list | tuple) or value is None else [value]


def _day(value: object) -> object:
    return str(value).lower() if isinstance(value, str) else value


def _expression(value: str) -> str:
    from cronsim import CronSim, CronSimError  # lazy: only schedules need it

    try:
        if len(value.split()) != 5:
            raise CronSimError("a cron expression has five fields")
        CronSim(value, datetime(2026, 1, 1))
    except CronSimError:
        hint = "minute, hour, day, month and weekday, as in `30 4 * * 1-5`"
        raise Wrong(f"`{value}` is not a cron expression", hint) from None
    return value


Moment = Annotated[Text, AfterValidator(_moment)]
Zone = Annotated[Text, AfterValidator(_zone)]
Hours = Annotated[list[Annotated[Integer, Field(ge=0, le=23)]], BeforeValidator(_several)]
Minutes = Annotated[list[Annotated[Integer, Field(ge=0, le=59)]], BeforeValidator(_several)]
MonthDays = Annotated[list[Annotated[Integer, Field(ge=1, le=31)]], BeforeValidator(_several)]
WeekDays = Annotated[
    list[
        Annotated[
            Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"],
            BeforeValidator(_day),
        ]
    ],
    BeforeValidator(_several),
]

# The tag of a schedule whose runs may be those of others: a JSON list of names, by version.
ENDPOINT_VERSIONS = "azureml.endpoint_versions"


class _Trigger(Part):
    """Times without an offset are local times of ``time_zone``."""

    start_time: Moment | None = None
    end_time: Moment | None = None
    time_zone: Zone = "UTC"


class CronTrigger(_Trigger):
    """Times that match a cron expression with five fields."""

    type: Literal["cron"] = "cron"
    expression: Annotated[Text, AfterValidator(_expression)]


class RecurrencePattern(Part):
    """Times of a day, on days of the week or of the month."""

    hours: Hours | None = None
    minutes: Minutes | None = None
    # Azure's schema calls them `week_days`, its documentation `weekdays`.
    weekdays: WeekDays | None = Field(
        default=None, validation_alias=AliasChoices("weekdays", "week_days")
    )
    month_days: MonthDays | None = None


class RecurrenceTrigger(_Trigger):
    """Every ``interval`` minutes, hours, days, weeks or months from the start."""

    type: Literal["recurrence"] = "recurrence"
    frequency: Annotated[Literal["minute", "hour", "day", "week", "month"], BeforeValidator(snake)]
    interval: Count = 1
    schedule: RecurrencePattern | None = None


class ManualTrigger(_Trigger):
    """No times: jobs are submitted by ``schedule trigger``."""

    type: Literal["manual"] = "manual"


Trigger = Annotated[
    CronTrigger | RecurrenceTrigger | ManualTrigger,
    Field(discriminator="type"),
    BeforeValidator(typed),
]


class Schedule(BaseJob):
    """A job, and when it is submitted. ``create_job`` is the job as its own file has it. Ours is
    ``catch_up``: a time that was missed because the server was down is made up for, once."""

    schema_: Text | None = Field(default=None, alias="$schema")
    name: Name
    display_name: Text | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    trigger: Trigger
    create_job: Annotated[dict[str, Any] | Text, BeforeValidator(sendable)]
    catch_up: bool = False


_MODELS: Mapping[str, tuple[type[BaseModel], ...]] = {
    "": (Schedule,),
    "trigger": (CronTrigger, RecurrenceTrigger, ManualTrigger),
    "trigger.schedule": (RecurrencePattern,),
}


def parse_schedule(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> Schedule:
    """The schedule in ``data``. Raises one SpecError with everything that is wrong."""
    return validated(Schedule, without_none(data), _MODELS, lines, file, _across)


def _across(made: Schedule) -> list[Problem]:
    trigger = made.trigger
    errors: list[Problem] = []
    start, end = trigger.start_time, trigger.end_time
    if isinstance(trigger, ManualTrigger) and (start or end or trigger.time_zone != "UTC"):
        hint = "leave out start_time, end_time and time_zone"
        errors.append(Problem("a manual trigger has no times", "trigger", hint=hint))
    elif start and end and moment(end, trigger.time_zone) <= moment(start, trigger.time_zone):
        hint = "give a later end_time, or leave it out"
        errors.append(Problem("the schedule ends before it starts", "trigger.end_time", hint=hint))
    if isinstance(trigger, RecurrenceTrigger) and trigger.schedule is not None:
        if trigger.frequency in ("minute", "hour"):
            hint = "leave it out, or use a cron trigger"
            message = f"`schedule` has no effect with the frequency `{trigger.frequency}`"
            errors.append(Problem(message, "trigger.schedule", hint=hint))
        for key, frequency in (("weekdays", "week"), ("month_days", "month")):
            if getattr(trigger.schedule, key) and trigger.frequency != frequency:
                hint = f"write `frequency: {frequency}`"
                message = f"`{key}` needs the frequency `{frequency}`"
                errors.append(Problem(message, f"trigger.schedule.{key}", hint=hint))
    return errors


def moment(text: str, time_zone: str) -> datetime:
    """A time of a trigger with its zone."""
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=zone(time_zone))
