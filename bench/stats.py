"""The few numbers that a benchmark is told in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

_SEED = 20260101


def paired(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Round by round, how many times ``other`` the ``one`` is: what was slow in a round was slow
    for both."""
    return [a / b for a, b in zip(one, other, strict=True)]


def interval(values: Sequence[float], resamples: int = 10_000) -> tuple[float, float]:
    """A 95 % percentile-bootstrap interval of the median; the same one every time."""
    dice = random.Random(_SEED)
    medians = sorted(median(dice.choices(values, k=len(values))) for _ in range(resamples))
    return medians[int(resamples * 0.025)], medians[int(resamples * 0.975) - 1]


def ratio_of_medians(
    one: Sequence[float], other: Sequence[float], resamples: int = 10_000
) -> tuple[float, float, float]:
    """How many times ``other`` the ``one`` is, of two runs that were not in rounds; and a 95 %
    percentile-bootstrap interval, the same one every time."""
    dice = random.Random(_SEED)
    ratios = sorted(
        median(dice.choices(one, k=len(one))) / median(dice.choices(other, k=len(other)))
        for _ in range(resamples)
    )
    low, high = ratios[int(resamples * 0.025)], ratios[int(resamples * 0.975) - 1]
    return median(one) / median(other), low, high


def coverage_of_range(n: int) -> float:
    """How surely the median lies between the smallest and largest of ``n`` values (sign test)."""
    return max(0.0, 1 - 0.5 ** (n - 1))


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": median(values), "min": min(values), "max": max(values)}
