"""Which trials of a sweep to stop early, as Azure ML defines its policies.

An interval is one report of the primary metric by a trial. A policy judges a trial once at each
interval that is a multiple of ``evaluation_interval`` and at least ``delay_evaluation``. It
compares it with what the other trials, ended ones too, have reported up to the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from allranks.spec.sweep.early_termination import (
    Bandit,
    EarlyTermination,
    MedianStopping,
    TruncationSelection,
)
from allranks.spec.sweep.job import AshaSampling

Policy = EarlyTermination | AshaSampling


class Curve(NamedTuple):
    """What a trial has reported of the primary metric, oldest first, and up to which interval it
    has been judged. ``running``: it can still be stopped."""

    values: tuple[float, ...]
    running: bool = True
    judged: int = 0


class Judgment(NamedTuple):
    """A trial's last judged interval, and why it is stopped; empty: it continues."""

    interval: int
    why: str = ""


def judge(policy: Policy, goal: str, curves: Mapping[int, Curve]) -> dict[int, Judgment]:
    """The trials that are due for a judgment, by number. Judging again with the result recorded in
    ``Curve.judged`` returns nothing until there are new reports."""
    losses = {number: [*_losses(goal, curve)] for number, curve in curves.items()}
    judgments = {}
    for number, curve in curves.items():
        for interval in _due(policy, curve):
            others = {
                n: values[:interval]
                for n, values in losses.items()
                if len(values) >= interval and (curves[n].running or not _running_only(policy))
            }
            why = _why(policy, goal, number, others, interval)
            judgments[number] = Judgment(interval, why)
            if why:
                break
    return judgments


def _running_only(policy: Policy) -> bool:
    """Whether ended trials are left out of the comparison."""
    return isinstance(policy, TruncationSelection) and policy.exclude_finished_jobs


def _due(policy: Policy, curve: Curve) -> Iterator[int]:
    """The intervals at which a trial has to be judged now."""
    if not curve.running:
        return
    for interval in range(curve.judged + 1, len(curve.values) + 1):
        if isinstance(policy, AshaSampling):
            if interval in _rungs(policy, interval):
                yield interval
        elif interval % policy.evaluation_interval == 0 and interval >= policy.delay_evaluation:
            yield interval


def first_interval(policy: Policy) -> int:
    """The first interval at which it judges a trial."""
    if isinstance(policy, AshaSampling):
        return policy.min_resource
    every = policy.evaluation_interval
    return max(1, -(-policy.delay_evaluation // every)) * every


def _rungs(policy: AshaSampling, most: int) -> Iterator[int]:
    rung = policy.min_resource
    while rung <= most:
        yield rung
        rung *= policy.reduction_factor


def _losses(goal: str, curve: Curve) -> Iterator[float]:
    """The reports as numbers to be minimized. NaN and infinite values count as the worst."""
    for value in curve.values:
        yield (-value if goal == "maximize" else value) if math.isfinite(value) else math.inf


def _why(
    policy: Policy, goal: str, number: int, losses: Mapping[int, list[float]], interval: int
) -> str:
    """Why the policy stops the trial at the interval, or nothing. ``losses`` are those of all
    trials that have reached it, up to it."""
    mine = min(losses[number])
    if isinstance(policy, Bandit):
        limit = _bandit_limit(policy, goal, min(min(values) for values in losses.values()))
        return _worse(goal, mine, limit, interval, "the bandit policy allows")
    if isinstance(policy, MedianStopping):
        limit = median(_mean(values) for values in losses.values())
        return _worse(goal, mine, limit, interval, "the median of all trials' averages is")
    if isinstance(policy, AshaSampling):
        ranked = sorted((min(values), n) for n, values in losses.items())
        stays = {n for _, n in ranked[: max(1, len(ranked) // policy.reduction_factor)]}
        word = f"not among the best 1/{policy.reduction_factor}"
        return "" if number in stays else f"it is {word} at interval {interval}"
    worst = sorted(((values[interval - 1], n) for n, values in losses.items()), reverse=True)
    cut = {n for _, n in worst[: len(worst) * policy.truncation_percentage // 100]}
    share = f"it is among the worst {policy.truncation_percentage} % at interval {interval}"
    return share if number in cut else ""


def _mean(values: Sequence[float]) -> float:
    """The mean, also of values whose sum is too large."""
    return math.fsum(value / len(values) for value in values)


def _bandit_limit(policy: Bandit, goal: str, best: float) -> float:
    """Azure's best / (1 + slack) where the goal is to maximize, best * (1 + slack) to minimize; the
    same distance where the best is negative."""
    if policy.slack_amount is not None:
        return best + policy.slack_amount
    slack = policy.slack_factor or 0.0
    return best + abs(best) * (slack / (1 + slack) if goal == "maximize" else slack)


def _worse(goal: str, mine: float, limit: float, interval: int, words: str) -> str:
    if mine <= limit:
        return ""
    sign = -1 if goal == "maximize" else 1
    return f"its best value is {sign * mine:.6g} at interval {interval}; {words} {sign * limit:.6g}"
