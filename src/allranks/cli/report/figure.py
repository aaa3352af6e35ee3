"""The data of the figures of a scaling report, shared by HTML and PNG.

All axes start at zero. Runs with different work only have times.
"""

from __future__ import annotations

from typing import NamedTuple

from allranks.core.charts import Axis, from_zero
from allranks.core.insights.scaling import Row, Scaling

_CURVE = 120
_CLOCKS = (("hours", 3600.0, 2 * 3600.0), ("minutes", 60.0, 120.0), ("seconds", 1.0, 0.0))

Dots = tuple[tuple[float, float], ...]


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
    percent: Axis = from_zero(100.0)


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
        across=Axis(0.0, ends + max(0.5, 0.06 * ends), _thin(sizes)),
        times=times,
        up=from_zero(min(max(highest, max((y for _, y in band), default=0.0)), 1.3 * highest)),
        bars=tuple(_bar(row, seconds) for row in rows),
        along=from_zero(longest / seconds),
        ideal=ideal,
        fit=fit,
        band=band,
        efficiency=efficiency,
        whole_efficiency=whole,
        percent=from_zero(max([100.0, *(y for _, y in (*efficiency, *whole))])),
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


def _thin(sizes: tuple[int, ...]) -> tuple[tuple[int, str], ...]:
    """Marks at sizes whose labels do not overlap."""
    kept: list[int] = []
    for size in reversed(sizes):
        if not kept or kept[-1] - size >= sizes[-1] / 20:
            kept.append(size)
    return tuple((size, str(size)) for size in reversed(kept))
