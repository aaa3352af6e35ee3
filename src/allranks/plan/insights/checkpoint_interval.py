"""How often to write a checkpoint: Young's and Daly's optimum, from what was measured.

J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
Generation Computer Systems 22 (2006), equation 37. Too often costs writing, too seldom costs the
work since the last one; in between is an interval at which both together are least.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple


class Advice(NamedTuple):
    """Seconds. ``interval`` of computing between two checkpoints, where ``cost`` is what one of
    them holds the job up and ``between`` the mean time from failure to failure; ``waste`` the part
    of the time from 0 to 1 that checkpoints and lost work then take together, restarts aside."""

    interval: float
    cost: float
    between: float
    failures: int
    waste: float


def advise(cost: float, computed: float, failures: int) -> Advice | None:
    """For a job that computed so many seconds and failed so many times; None where nothing can be
    said: without a failure nobody knows how far apart they are."""
    if failures < 1 or cost <= 0 or computed <= 0:
        return None
    between = computed / failures
    interval = optimum(cost, between)
    return Advice(interval, cost, between, failures, waste(interval, cost, between))


def held_up(steps: Sequence[tuple[int, float]], written: Iterable[float]) -> list[float]:
    """What each checkpoint took the job, seconds, of one that tells its ``steps`` and when: how
    much longer than usual the step took in which the last byte of it was ``written``. Of those
    alone that were longer by more than steps differ anyhow: a script may go on while it writes."""
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
    found = (took - usual * count for count, took in writing)
    return [each for each in found if each > noise]


def optimum(cost: float, between: float) -> float:
    """The seconds of computing after which to write, for failures that come independently."""
    if cost >= 2 * between:
        return between  # hardly any interval is ever finished: no estimate holds there
    part = cost / (2 * between)
    return math.sqrt(2 * cost * between) * (1 + math.sqrt(part) / 3 + part / 9) - cost


def waste(interval: float, cost: float, between: float) -> float:
    """The part of the time that brings nothing: Daly's equation 13 without the restarts' own."""
    needed = between * math.expm1((interval + cost) / between)
    return 1 - interval / needed
