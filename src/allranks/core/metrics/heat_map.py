"""A heat map of many ranks: a shade for each cell of a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from allranks.core.metrics.across_ranks import Cells

# The share of all cells, and of a row's, that may lie beyond either end of the scale: few cells of
# a thousand do not take the colours from the others, but a rank that differs for a tenth of the
# time is seen.
_OF_ALL, _OF_ROW = 0.005, 0.1
# Shades from `low` to `high`; 0 is for cells without a value.
SHADES = 255


class HeatMap(NamedTuple):
    """``shades``: a byte for each cell, row after row: 0 without a value, 1 at ``low`` and below,
    ``SHADES`` at ``high`` and above."""

    low: float
    high: float
    shades: bytes


def heat_map(cells: Sequence[Cells]) -> HeatMap:
    rows = [sorted(value for value in row if value is not None) for row in cells]
    every = sorted(chain.from_iterable(rows))
    if not every:
        return HeatMap(0.0, 0.0, bytes(sum(map(len, cells))))
    low = min(_at(every, _OF_ALL), *(_at(row, _OF_ROW) for row in rows if row))
    high = max(_at(every, 1 - _OF_ALL), *(_at(row, 1 - _OF_ROW) for row in rows if row))
    # Halves: the difference of the largest numbers is infinite.
    half = high / 2 - low / 2
    scale = (SHADES - 1) / half if half > 0 else 0.0
    if not math.isfinite(scale):
        scale = 0.0
    first = low / 2
    shades = bytes(
        0 if value is None else 1 + round((min(max(value, low), high) / 2 - first) * scale)
        for row in cells
        for value in row
    )
    return HeatMap(low, high, shades)


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]
