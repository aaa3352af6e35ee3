"""What a sweep does next: a pure function of its record, its trials' records and the time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from allranks.core.parents.early_termination import Curve, Policy, judge
from allranks.statuses import TERMINAL, JobStatus, Reason


class Rules(NamedTuple):
    """``trials`` is how many the sweep may run, ``concurrent`` how many at a time. ``timeout`` in
    seconds. Without a ``goal`` trials are not compared, and all have to complete."""

    trials: int
    concurrent: int
    goal: str | None
    timeout: float | None = None
    policy: Policy | None = None


class Trial(NamedTuple):
    """A trial as its own record has it. ``reports`` are its values of the primary metric, oldest
    first, and ``judged`` the last of them (from 1) at which a policy judged it. ``canceled``: its
    cancellation was requested. ``closed``: the record has its ``value``, the best one.
    ``prepared``: None until its ranks started; False: its code, data or environment, which all
    trials share, could not be prepared, and trying again would not help."""

    number: int
    status: JobStatus
    reports: tuple[float, ...] = ()
    judged: int = 0
    canceled: bool = False
    closed: bool = False
    value: float | None = None
    prepared: bool | None = None


class Parent(NamedTuple):
    """The sweep's own record. ``started_at`` is None until its first step; ``refused`` says why a
    trial could not be submitted; ``again`` are the numbers of trials that a restart replaces."""

    started_at: float | None = None
    canceled: bool = False
    refused: str = ""
    again: frozenset[int] = frozenset()


class Step(NamedTuple):
    """One thing to do, and the trial it is for:

    ``start`` the sweep, ``close`` an ended trial, ``judge`` a trial at its report ``interval`` and
    cancel it if there is a reason ``why``, ``cancel`` a trial, ``draw`` and submit a new one,
    ``finish`` the sweep with ``reason``.
    """

    kind: Literal["start", "close", "judge", "cancel", "draw", "finish"]
    number: int = -1
    interval: int = 0
    why: str = ""
    reason: Reason | None = None


def next_step(rules: Rules, parent: Parent, trials: Sequence[Trial], now: float) -> Step | None:
    """The next step; None until something happens. A step is returned again until the record shows
    it, so doing it twice must be the same as doing it once."""
    live = [trial for trial in trials if trial.status not in TERMINAL]
    ended = next((e for e in trials if e.status in TERMINAL and not e.closed), None)
    if ended is not None:
        return Step("close", ended.number)
    if (reason := _stops(rules, parent, trials, now)) is not None:
        running = next((trial for trial in live if not trial.canceled), None)
        if running is not None:
            return Step("cancel", running.number)
        return None if live else Step("finish", reason=reason)
    if parent.started_at is None:
        return Step("start")
    if (judged := _judged(rules, trials)) is not None:
        return judged
    numbers = {trial.number for trial in trials}
    drawn = min({*parent.again, 1 + max(numbers, default=-1)} - numbers)
    if drawn < rules.trials:
        return Step("draw", drawn) if len(live) < rules.concurrent else None
    if live:
        return None
    if rules.goal is None:
        succeeded = all(trial.status is JobStatus.COMPLETED for trial in trials)
    else:
        succeeded = best(rules.goal, trials) is not None
    return Step("finish", reason=Reason.DONE if succeeded else Reason.RANK_EXITED)


def unprepared(trials: Sequence[Trial]) -> Trial | None:
    """The trial whose setup failed as every trial's would. None if any trial was prepared: then
    it was that trial's node."""
    if any(trial.prepared for trial in trials):
        return None
    return next((trial for trial in trials if trial.prepared is False), None)


def _stops(rules: Rules, parent: Parent, trials: Sequence[Trial], now: float) -> Reason | None:
    """Why the sweep ends before its last trial."""
    if parent.canceled:
        return Reason.CANCELED
    if parent.refused:
        return Reason.GANG_REFUSED
    if unprepared(trials) is not None:
        return Reason.SETUP_FAILED
    started = parent.started_at
    if rules.timeout is not None and started is not None and now >= started + rules.timeout:
        return Reason.TIME_LIMIT
    return None


def _judged(rules: Rules, trials: Sequence[Trial]) -> Step | None:
    if rules.policy is None:
        return None
    curves = {
        trial.number: Curve(
            trial.reports, trial.status not in TERMINAL and not trial.canceled, trial.judged
        )
        for trial in trials
    }
    for number, (interval, why) in judge(rules.policy, rules.goal or "minimize", curves).items():
        return Step("judge", number, interval, why)
    return None


def best(goal: str | None, trials: Sequence[Trial]) -> Trial | None:
    """The trial with the best value. None while no trial has one."""
    return next(iter(rank(goal, trials)), None)


def rank(goal: str | None, trials: Sequence[Trial]) -> list[Trial]:
    """The trials with a value, the best first; of equals the earlier. Failed trials do not count,
    trials that were stopped early do."""
    sign = -1 if goal == "maximize" else 1
    counted = [
        (sign * trial.value, trial.number, trial)
        for trial in trials
        if trial.value is not None and trial.status is not JobStatus.FAILED
    ]
    return [trial for *_, trial in sorted(counted)]


def best_value(goal: str | None, reports: Iterable[float]) -> float | None:
    """The best finite value; None without one."""
    finite = [report for report in reports if math.isfinite(report)]
    if not finite:
        return None
    return max(finite) if goal == "maximize" else min(finite)
