"""Which points of a long series a chart needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

# The ordinary points of a bucket: first, last, least and greatest.
PER_BUCKET = 4


def thin(values: Sequence[float], width: int) -> Iterator[int]:
    """The places, in order, of the points that keep the shape of ``values``: of each ``width`` of
    them the first, the last, the least, the greatest, and the first NaN and infinity of each
    sign."""
    for start in range(0, len(values), width):
        bucket = values[start : start + width]
        yield from (start + place for place in sorted(_places(bucket)))


def _places(bucket: Sequence[float]) -> set[int]:
    places = {0, len(bucket) - 1}
    finite = bucket
    if not math.isfinite(sum(bucket)):
        finite = [value for value in bucket if math.isfinite(value)]
        odd = (place for place, value in enumerate(bucket) if not math.isfinite(value))
        # NaN is not equal to itself, but its text is.
        places |= set({str(bucket[place]): place for place in reversed([*odd])}.values())
    if finite:
        places |= {bucket.index(min(finite)), bucket.index(max(finite))}
    return places
