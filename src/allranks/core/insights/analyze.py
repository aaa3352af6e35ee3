"""The bottleneck of a job, found by rules with evidence.

A rule yields nothing unless it is sure: not with too few points, not if the two halves of the run
disagree, and not if other data contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from allranks.core.insights import bottleneck_rules, network, resource_usage, stragglers
from allranks.core.insights.insight import Bottleneck, Insight
from allranks.core.insights.job_facts import Facts

Rule = Callable[[Facts], Iterator[Insight]]

RULES: tuple[Rule, ...] = (
    bottleneck_rules.input_bound,
    bottleneck_rules.compute_bound,
    bottleneck_rules.memory_pressure,
    stragglers.imbalance,
    stragglers.idle_gpus,
    stragglers.quiet_ranks,
    stragglers.unsharded,
    network.without_rdma,
)


class Report(NamedTuple):
    """All insights and the one bottleneck. If the bottleneck is unknown, ``used`` are sentences on
    the measured use of resources, ``needed`` sentences on what to record to learn more."""

    insights: tuple[Insight, ...]
    bottleneck: Bottleneck
    used: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


def report(job: Facts) -> Report:
    """The report on a job. The bottleneck is unknown if verdicts contradict each other.

    Load alone decides only if no rule has a verdict: a job may be busy and short of memory.
    """
    insights = tuple(insight for rule in RULES for insight in rule(job))
    if not any(insight.verdict for insight in insights):
        insights += tuple(bottleneck_rules.saturated(job))
    verdicts = {insight.verdict for insight in insights if insight.verdict is not None}
    if len(verdicts) == 1:
        return Report(insights, verdicts.pop())
    return Report(
        insights, Bottleneck.UNKNOWN, resource_usage.used(job), resource_usage.needed(job)
    )
