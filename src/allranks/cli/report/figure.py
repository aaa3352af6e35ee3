"""The data of the figures of a scaling report, shared by HTML and PNG.

All axes start at zero. Runs with different work only have times.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from allranks.core.insights.scaling import Row, Scaling

_CURVE = 120
_CLOCKS = (("hours", 3600.0, 2 * 3600.0), ("minutes", 60.0, 120.0), ("seconds", 1.0, 0.0))

Dots = tuple[tuple[float, float], ...]


class Axis(NamedTuple):
    """From zero to ``top``, with a mark at each of ``marks``."""

    top: float
    marks: tuple[float, ...]


class Bar(NamedTuple):
    """A run's time before, during and after its ranks ran."""

    name: str
    size: int
    parts: tuple[float, float, float]


class Figure(NamedTuple):
    """Times are in the unit ``clock``; ``band`` has a low and high for each x of ``fit``."""

    unit: str
    clock: str
    sizes: tuple[int, ...]
    across: Axis
    times: Dots
    up: Axis
    bars: tuple[Bar, ...]
    along: Axis
    ideal: Dots = ()
    fit: Dots = ()
    band: tuple[tuple[float, float], ...] = ()
    efficiency: Dots = ()
    whole_efficiency: Dots = ()
    percent: Axis = Axis(100.0, (0.0, 25.0, 50.0, 75.0, 100.0))


def figure(scaling: Scaling) -> Figure:
    """The figure of a report with at least one row."""
    rows = scaling.rows
    longest = max(row.whole for row in rows)
    clock, seconds, _ = next(each for each in _CLOCKS if max(r.time for r in rows) >= each[2])
    sizes = tuple(sorted({row.size for row in rows}))
    ends = sizes[-1] + (1 if scaling.fit else 0)
    xs = [sizes[0] + (ends - sizes[0]) * i / _CURVE for i in range(_CURVE + 1)]
    times = tuple((float(row.size), row.time / seconds) for row in rows)
    fit = tuple((x, scaling.fit.at(x) / seconds) for x in xs) if scaling.fit else ()
    bands = [scaling.fit.band(x) for x in xs] if scaling.fit else []
    band = tuple((each.low / seconds, each.high / seconds) for each in bands if each)
    ideal = _ideal(rows, xs, seconds) if scaling.fit else ()
    highest = max(y for _, y in (*times, *fit, *ideal))
    gains = [(float(row.size), row.gain, row.whole_gain) for row in rows]
    efficiency = tuple((x, 100 * gain.efficiency) for x, gain, _ in gains if gain)
    whole = tuple((x, 100 * gain.efficiency) for x, _, gain in gains if gain)
    return Figure(
        unit=scaling.unit,
        clock=clock,
        sizes=sizes,
        across=Axis(ends + max(0.5, 0.06 * ends), tuple(map(float, _thin(sizes)))),
        times=times,
        up=axis(min(max(highest, max((y for _, y in band), default=0.0)), 1.3 * highest)),
        bars=tuple(_bar(row, seconds) for row in rows),
        along=axis(longest / seconds),
        ideal=ideal,
        fit=fit,
        band=band,
        efficiency=efficiency,
        whole_efficiency=whole,
        percent=axis(max(100.0, *(y for _, y in (*efficiency, *whole))))
        if efficiency
        else axis(100.0),
    )


def _ideal(rows: tuple[Row, ...], xs: list[float], seconds: float) -> Dots:
    """The ideal time: that of the smallest size, divided."""
    row = next(each for each in rows if each.gain)
    assert row.gain is not None
    first, least = row.time * row.gain.speedup, rows[0].size
    return tuple((x, first * least / x / seconds) for x in xs)


def _bar(row: Row, seconds: float) -> Bar:
    parts = (row.before / seconds, row.time / seconds, row.after / seconds)
    return Bar(row.name, row.size, parts)


def axis(most: float) -> Axis:
    """Four to seven marks at round numbers, the last at or above ``most``."""
    rough = max(most, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= rough * 0.999)
    count = math.ceil(most / step - 1e-9)
    return Axis(count * step, tuple(i * step for i in range(count + 1)))


def _thin(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes whose labels do not overlap."""
    kept: list[int] = []
    for size in reversed(sizes):
        if not kept or kept[-1] - size >= sizes[-1] / 20:
            kept.append(size)
    return tuple(reversed(kept))
