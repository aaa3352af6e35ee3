"""A metric of many ranks: its mean and range at each step, and who differs from the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

# Columns of a heat map, which also decide who is an outlier.
COLUMNS = 300
# An outlier differs by so many robust standard deviations, and by this share of the median.
_DEVIATIONS, _SHARE, _ROBUST = 6.0, 0.02, 1.4826
# Columns without a point of a track whose clock differs that have the value beside them.
_HOLE = 2
# A rank is late at a step if it takes this many times as long as the median.
LATE = 1.1


class Track(NamedTuple):
    """The points of a rank, or of a GPU. ``places``: steps, or times of resources."""

    places: Sequence[float]
    values: Sequence[float]


class Band(NamedTuple):
    """By place: values of all tracks, and the numbers of the tracks with the extremes."""

    places: list[float]
    mean: list[float | None]
    least: list[float | None]
    greatest: list[float | None]
    least_track: list[int | None]
    greatest_track: list[int | None]


NO_BAND = Band([], [], [], [], [], [])


class Standing(NamedTuple):
    """How a track stands to the median of all. ``difference`` is the mean one. ``late``: the share
    of columns at which it is late, ``longest`` the most of them in a row from column ``begin``,
    ``worst`` the greatest difference, at column ``at``."""

    difference: float
    outlier: bool
    late: float
    longest: int
    begin: int
    worst: float
    at: int


Cells = list[float | None]
Reduce = Callable[[Sequence[float]], float]


def band(tracks: Sequence[Track], most: int) -> Band:
    """The band of at most ``most`` places: see ``grid``."""
    means = grid(tracks, most)
    lows = highs = means.cells
    if not means.single:
        lows, highs = grid(tracks, most, min).cells, grid(tracks, most, max).cells
    result = Band(means.places, [], [], [], [], [])
    for low, high, column in zip(
        *(zip(*rows, strict=True) for rows in (lows, highs, means.cells)), strict=True
    ):
        numbers = _numbers(column)
        if not numbers:
            for missing in result[1:]:
                missing.append(None)
            continue
        least, greatest = min(_numbers(low)), max(_numbers(high))
        result.mean.append(mean(numbers))
        result.least.append(least)
        result.greatest.append(greatest)
        result.least_track.append(low.index(least))
        result.greatest_track.append(high.index(greatest))
    return result


def _numbers(column: Sequence[float | None]) -> Sequence[float]:
    # Most columns lack nothing, and there may be thousands.
    return column if None not in column else [value for value in column if value is not None]  # type: ignore[return-value]


class Grid(NamedTuple):
    """``single``: each cell is one point."""

    places: list[float]
    cells: list[Cells]
    single: bool


def mean(values: Sequence[float]) -> float:
    """The mean of finite values, which is finite also where their sum is not."""
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    return min(max(values), max(min(values), sum(value / len(values) for value in values)))


def grid(tracks: Sequence[Track], most: int, reduce: Reduce = mean) -> Grid:
    """A row of cells for each track and at most ``most`` columns of neighbouring places; a cell
    without a finite value is None. Places may come in any order and more than once."""
    first = tracks[0].places
    ordered = all(a < b for a, b in pairwise(first))
    if ordered and all(track.places == first for track in tracks):
        width = math.ceil(len(first) / most)
        starts = range(0, len(first), width)
        if width == 1:
            return Grid([*first], [_finite(track.values) for track in tracks], True)
        cells = [
            [_reduced(track.values[start : start + width], reduce) for start in starts]
            for track in tracks
        ]
        return Grid([first[at] for at in starts], cells, False)
    # Clocks differ between nodes: columns are so wide that most have a point of each track.
    lengths = [len(track.places) for track in tracks]
    every = sorted({place for track in tracks for place in track.places})
    aligned = 2 * sum(lengths) > len(tracks) * len(every)
    usual = max(1, round(median(lengths)))
    width = math.ceil(len(every) / min(most, len(every) if aligned else usual))
    column = {place: number // width for number, place in enumerate(every)}
    cells = []
    for track in tracks:
        values: list[list[float]] = [[] for _ in every[::width]]
        for place, value in zip(*track, strict=True):
            values[column[place]].append(value)
        row = [_reduced(several, reduce) for several in values]
        cells.append(row if aligned else _without_holes(row))
    return Grid(every[::width], cells, False)


def _without_holes(row: Cells) -> Cells:
    """Cells whose small holes have the value before them, at the begin that behind it: else the
    mean of all would jump to that of the others."""
    filled = [*row]
    for step in (1, -1):
        hole = 0
        for at in range(len(row))[::step][1:]:
            hole = hole + 1 if row[at] is None else 0
            if filled[at] is None and 0 < hole <= _HOLE:
                filled[at] = filled[at - step]
    return filled


def _finite(values: Sequence[float]) -> Cells:
    if math.isfinite(sum(values)):
        return [*values]
    return [value if math.isfinite(value) else None for value in values]


def _reduced(values: Sequence[float], reduce: Reduce) -> float | None:
    total = sum(values)
    if not math.isfinite(total):
        values = [value for value in values if math.isfinite(value)]
    elif reduce is mean and len(values):
        return total / len(values)
    return float(reduce(values)) if len(values) else None


def standings(cells: Sequence[Cells]) -> list[Standing]:
    """How each row of cells stands to the median of its columns."""
    medians = [_median(column) for column in zip(*cells, strict=True)]
    means = [
        mean(
            [a - b for a, b in zip(row, medians, strict=True) if a is not None and b is not None]
            or [0.0]
        )
        for row in cells
    ]
    middle = median(means)
    spread = _ROBUST * median(abs(value - middle) for value in means)
    size = abs(median([value for value in medians if value is not None] or [0.0]))
    limit = max(_DEVIATIONS * spread, _SHARE * size)
    result = []
    for row, difference in zip(cells, means, strict=True):
        pairs = [*zip(row, medians, strict=True)]
        late = [a is not None and b is not None and b > 0 and a > LATE * b for a, b in pairs]
        over = [a - b if a is not None and b is not None else -math.inf for a, b in pairs]
        worst = max(range(len(over)), key=over.__getitem__)
        begin, longest = _longest(late)
        outlier = len(cells) > 2 and abs(difference - middle) > limit
        share = sum(late) / len(late)
        result.append(
            Standing(difference, outlier, share, longest, begin, max(0.0, over[worst]), worst)
        )
    return result


def _median(column: Sequence[float | None]) -> float | None:
    numbers = sorted(_numbers(column))
    return numbers[len(numbers) // 2] if numbers else None


def _longest(late: Sequence[bool]) -> tuple[int, int]:
    """Where the longest run begins, and its length."""
    begin, longest, at = 0, 0, 0
    for is_late, run in groupby(late):
        length = len([*run])
        if is_late and length > longest:
            begin, longest = at, length
        at += length
    return begin, longest
