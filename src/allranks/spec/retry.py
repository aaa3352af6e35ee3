"""When a job starts again."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from allranks.spec.fields.base import Part
from allranks.spec.fields.scalars import Count, Integer, Several
from allranks.spec.job_parts import snake

Key = Annotated[Literal["node_lost", "preempted", "hang", "user", "setup"], BeforeValidator(snake)]
Restarts = Annotated[Integer, Field(ge=0)]


class Budgets(Part):
    """How often a job may start again after what is no failure of its script's; None: the rule."""

    node_lost: Restarts | None = None
    preempted: Restarts | None = None
    hang: Restarts | None = None
    setup: Restarts | None = None


class Retry(Part):
    """How often a job may start, and after which causes it may start again. ``max_attempts`` counts
    failures of the script; each other cause has a budget of its own."""

    max_attempts: Count = 1
    on: Several[Key] = ("node_lost", "preempted", "hang", "user", "setup")
    budgets: Budgets = Field(default_factory=Budgets)
