"""How often to write a checkpoint: Young's and Daly's optimum, from measurements.

J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
Generation Computer Systems 22 (2006), equation 37: the interval with the least total cost of
writing checkpoints and of work lost since the last one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple


class Advice(NamedTuple):
    """Compute for ``interval`` seconds between checkpoints, if one delays the job by ``cost``
    seconds and failures are ``between`` seconds apart on average. ``waste`` is the share of time (0
    to 1) that checkpoints and lost work then take, without restarts."""

    interval: float
    cost: float
    between: float
    failures: int
    waste: float


def advise(cost: float, computed: float, failures: int) -> Advice | None:
    """The advice for a job that computed for ``computed`` seconds; None without a failure, since
    the time between failures is then unknown."""
    if failures < 1 or cost <= 0 or computed <= 0:
        return None
    between = computed / failures
    interval = optimum(cost, between)
    return Advice(interval, cost, between, failures, waste(interval, cost, between))


def held_up(steps: Sequence[tuple[int, float]], written: Iterable[float]) -> list[float]:
    """The seconds by which each checkpoint delayed the job: how much longer than usual the step
    took during which it was ``written``. ``steps`` are (step, time). Delays within the usual
    scatter of steps are omitted, since a script may write in the background."""
    times = [at for _, at in steps]
    within = {bisect_left(times, at) for at in written} - {0, len(times)}
    paces: list[float] = []
    writing: list[tuple[int, float]] = []
    for index, ((a, begin), (b, end)) in enumerate(pairwise(steps), 1):
        if index in within and b >= a:
            writing.append((b - a, end - begin))
        elif b > a:
            paces.append((end - begin) / (b - a))
    if not paces:
        return []
    usual = median(paces)
    noise = 3 * median(abs(pace - usual) for pace in paces)
    delays = (took - usual * count for count, took in writing)
    return [delay for delay in delays if delay > noise]


def optimum(cost: float, between: float) -> float:
    """The seconds of computing between checkpoints, for independent failures."""
    if cost >= 2 * between:
        return between  # hardly any interval completes: the estimate does not hold
    part = cost / (2 * between)
    return math.sqrt(2 * cost * between) * (1 + math.sqrt(part) / 3 + part / 9) - cost


def waste(interval: float, cost: float, between: float) -> float:
    """The wasted share of time: Daly's equation 13 without the time of restarts."""
    needed = between * math.expm1((interval + cost) / between)
    return 1 - interval / needed
