"""When a job restarts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from allranks.spec.fields.base import Part
from allranks.spec.fields.scalars import Count, Integer, Several
from allranks.spec.job_parts import snake

Key = Annotated[Literal["node_lost", "preempted", "hang", "user", "setup"], BeforeValidator(snake)]
Restarts = Annotated[Integer, Field(ge=0)]


class Budgets(Part):
    """How often a job may restart after causes other than its script; None means the default."""

    node_lost: Restarts | None = None
    preempted: Restarts | None = None
    hang: Restarts | None = None
    setup: Restarts | None = None


class Retry(Part):
    """How often and after which causes a job may restart. ``max_attempts`` limits failures of the
    script; every other cause has its own budget. ``fresh_work``: no attempt finds what earlier ones
    wrote to their working folder. ``no_progress``: what follows attempts in a row that end by the
    time limit of the compute and get nowhere."""

    max_attempts: Count = 1
    on: Several[Key] = ("node_lost", "preempted", "hang", "user", "setup")
    budgets: Budgets = Field(default_factory=Budgets)
    fresh_work: bool = False
    no_progress: Literal["fail", "warn", "ignore"] = "fail"
