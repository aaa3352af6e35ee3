"""Amdahl's law fitted to measured times, with confidence intervals.

    T(n) = fixed + shared / n

G. M. Amdahl, *Validity of the single processor approach to achieving large scale computing
capabilities*, AFIPS 1967: one part of the work takes the same time at any size; the rest is
shared by n. It is fitted by least squares in x = 1/n, where it is a straight line.

The 95 % interval is that of ordinary linear regression: with m points and the residual variance
estimated with m - 2 degrees of freedom, each coefficient lies within t standard errors, t being the
two-sided quantile of Student's distribution. Its integral has a closed form for integer degrees of
freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4), which is inverted here by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95

FASTER = "times fall faster than 1/n, which the law cannot explain: the fixed part is taken as 0"
SLOWER = "larger runs were slower, which Amdahl's law cannot describe"
EXACT = "two sizes always lie on such a curve: run a third size for a confidence interval"


class Interval(NamedTuple):
    """The 95 % confidence interval of a value, provided that the law holds."""

    low: float
    high: float


class Fit(NamedTuple):
    """The law with its two coefficients in seconds. ``spread`` holds the variances of ``fixed`` and
    ``shared`` and their covariance, None if unknown; ``t`` is the quantile. ``note`` is a warning
    about the fit."""

    fixed: float
    shared: float
    spread: tuple[float, float, float] | None = None
    t: float = 0.0
    note: str = ""

    def at(self, n: float) -> float:
        return self.fixed + self.shared / n

    def band(self, n: float) -> Interval | None:
        """The confidence interval of the mean time at that size."""
        if self.spread is None:
            return None
        of_fixed, of_shared, both = self.spread
        error = self.t * math.sqrt(max(0.0, of_fixed + 2 * both / n + of_shared / n**2))
        return Interval(max(0.0, self.at(n) - error), self.at(n) + error)

    @property
    def fixed_interval(self) -> Interval | None:
        return self.spread and _interval(self.fixed, self.t, self.spread[0])

    @property
    def shared_interval(self) -> Interval | None:
        return self.spread and _interval(self.shared, self.t, self.spread[1])

    @property
    def most(self) -> float | None:
        """The limit of the speed-up over one; None if there is no limit."""
        return self.at(1) / self.fixed if self.fixed > 0 else None

    def saved(self, n: int) -> float:
        """The seconds that n + 1 saves over n."""
        return self.shared / (n * (n + 1))

    def saved_interval(self, n: int) -> Interval | None:
        interval = self.shared_interval
        return interval and Interval(interval.low / (n * (n + 1)), interval.high / (n * (n + 1)))


def fit(times: Sequence[tuple[int, float]]) -> Fit | None:
    """The law fitted to (size, seconds) pairs. None for fewer than two sizes.

    With two sizes it is the curve through their mean times, without intervals. A negative
    coefficient means that the law does not hold: it is set to 0, and the note says so.
    """
    sizes = {n for n, _ in times}
    if len(sizes) < 2:
        return None
    xs, ys = [1 / n for n, _ in times], [seconds for _, seconds in times]
    middle = math.fsum(xs) / len(xs)
    mean = math.fsum(ys) / len(ys)
    width = math.fsum((x - middle) ** 2 for x in xs)
    shared = math.fsum((x - middle) * (y - mean) for x, y in zip(xs, ys, strict=True)) / width
    fixed = mean - shared * middle
    if shared < 0:
        return Fit(mean, 0.0, note=SLOWER)
    if fixed < 0:
        return _without_fixed(xs, ys, len(sizes))
    if len(sizes) == 2:
        return Fit(fixed, shared, note=EXACT)
    left = math.fsum((y - fixed - shared * x) ** 2 for x, y in zip(xs, ys, strict=True))
    variance = left / (len(xs) - 2)
    spread = (
        variance * (1 / len(xs) + middle**2 / width),
        variance / width,
        -variance * middle / width,
    )
    return Fit(fixed, shared, spread, student(len(xs) - 2))


def _without_fixed(xs: Sequence[float], ys: Sequence[float], sizes: int) -> Fit:
    """``T = shared / n``, used if the fixed part would be negative."""
    square = math.fsum(x * x for x in xs)
    shared = math.fsum(x * y for x, y in zip(xs, ys, strict=True)) / square
    if sizes == 2:
        return Fit(0.0, shared, note=FASTER)
    left = math.fsum((y - shared * x) ** 2 for x, y in zip(xs, ys, strict=True))
    spread = (0.0, left / (len(xs) - 1) / square, 0.0)
    return Fit(0.0, shared, spread, student(len(xs) - 1), FASTER)


def _interval(value: float, t: float, variance: float) -> Interval:
    error = t * math.sqrt(variance)
    return Interval(max(0.0, value - error), value + error)


def student(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile of Student's distribution."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        theta = (low + high) / 2
        low, high = (theta, high) if _within(theta, freedom) < confidence else (low, theta)
    return math.sqrt(freedom) * math.tan(low)


def _within(theta: float, freedom: int) -> float:
    """The probability of ``|t| < sqrt(freedom) tan(theta)``."""
    odd = freedom % 2
    term, total = (math.cos(theta) if odd else 1.0), 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * math.cos(theta) ** 2
    area = math.sin(theta) * total
    return (theta + area) * 2 / math.pi if odd else area
