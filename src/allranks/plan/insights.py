"""What kept a job from being faster, as far as its record shows it: plain rules with evidence.

Each rule says nothing when it is not sure: when there are too few points, when the halves of the
run do not agree, or when something else in the record contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from allranks.plan import bottlenecks, oddities
from allranks.plan.insight import Bottleneck, Insight
from allranks.plan.observed import Facts

Rule = Callable[[Facts], Iterator[Insight]]

RULES: tuple[Rule, ...] = (
    bottlenecks.input_bound,
    bottlenecks.compute_bound,
    bottlenecks.memory_pressure,
    oddities.imbalance,
    oddities.idle_gpus,
    oddities.quiet_ranks,
    oddities.unsharded,
)


class Report(NamedTuple):
    """Everything that was found, and the one thing that held the job back."""

    insights: tuple[Insight, ...]
    bottleneck: Bottleneck


def report(job: Facts) -> Report:
    """What the record of that job shows. Two verdicts contradict each other: then it is unknown."""
    found = tuple(insight for rule in RULES for insight in rule(job))
    verdicts = {insight.verdict for insight in found if insight.verdict is not None}
    return Report(found, verdicts.pop() if len(verdicts) == 1 else Bottleneck.UNKNOWN)
