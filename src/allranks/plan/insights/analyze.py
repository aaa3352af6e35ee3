"""What kept a job from being faster, as far as its record shows it: plain rules with evidence.

Each rule says nothing when it is not sure: when there are too few points, when the halves of the
run do not agree, or when something else in the record contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from allranks.plan.insights import bottleneck_rules, resource_usage, stragglers
from allranks.plan.insights.insight import Bottleneck, Insight
from allranks.plan.insights.job_facts import Facts

Rule = Callable[[Facts], Iterator[Insight]]

RULES: tuple[Rule, ...] = (
    bottleneck_rules.input_bound,
    bottleneck_rules.compute_bound,
    bottleneck_rules.memory_pressure,
    stragglers.imbalance,
    stragglers.idle_gpus,
    stragglers.quiet_ranks,
    stragglers.unsharded,
)


class Report(NamedTuple):
    """Everything that was found, and the one thing that held the job back. Where that is unknown:
    the sentences ``used`` say what was measured, ``needed`` what it would take to know more."""

    insights: tuple[Insight, ...]
    bottleneck: Bottleneck
    used: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


def report(job: Facts) -> Report:
    """What the record of that job shows. Two verdicts contradict each other: then it is unknown.

    Loads alone count where nothing else has a verdict: a job may be short of memory and busy.
    """
    found = tuple(insight for rule in RULES for insight in rule(job))
    if not any(insight.verdict for insight in found):
        found += tuple(bottleneck_rules.saturated(job))
    verdicts = {insight.verdict for insight in found if insight.verdict is not None}
    if len(verdicts) == 1:
        return Report(found, verdicts.pop())
    return Report(found, Bottleneck.UNKNOWN, resource_usage.used(job), resource_usage.needed(job))
