"""When a sweep stops trials that fall behind. Names and defaults are Azure ML v2's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from allranks.spec.fields.base import Part
from allranks.spec.fields.scalars import Count, Integer, Wrong
from allranks.spec.job_parts import typed

Share = Annotated[Integer, Field(ge=1, le=99)]
Slack = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Policy(Part):
    """An interval is one report of the primary metric by a trial."""

    evaluation_interval: Count = 1
    delay_evaluation: Annotated[Integer, Field(ge=0)] = 0


class Bandit(_Policy):
    """Stops a trial whose best value is worse than the best trial's by more than the slack."""

    type: Literal["bandit"] = "bandit"
    slack_factor: Slack | None = None
    slack_amount: Slack | None = None

    @model_validator(mode="after")
    def _one_slack(self) -> Bandit:
        if (self.slack_factor is None) == (self.slack_amount is None):
            detail = "both are given" if self.slack_factor is not None else "neither is given"
            raise Wrong(
                f"a bandit policy has `slack_factor` or `slack_amount`, and {detail}",
                "write `slack_factor: 0.1` to allow ten percent",
            )
        return self


class MedianStopping(_Policy):
    """Stops a trial whose best value is worse than the median of all trials' running averages."""

    type: Literal["median_stopping"] = "median_stopping"


class TruncationSelection(_Policy):
    """Stops the worst ``truncation_percentage`` percent of the trials at each interval."""

    type: Literal["truncation_selection"] = "truncation_selection"
    truncation_percentage: Share
    exclude_finished_jobs: bool = False


POLICIES = (Bandit, MedianStopping, TruncationSelection)
EarlyTermination = Annotated[
    Bandit | MedianStopping | TruncationSelection,
    Field(discriminator="type"),
    BeforeValidator(typed),
]
