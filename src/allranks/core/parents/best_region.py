"""Where the best trials of a sweep lie: the next budget is best spent there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# The share of trials that counts as the best, and how many there must be.
_SHARE, _LEAST = 0.2, 3


class Region(NamedTuple):
    """The values of a parameter among the best trials: from ``low`` to ``high``, or the most
    frequent ``values``. ``trials`` is the number of best trials."""

    trials: int
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()


def best_regions(ranked: Sequence[Mapping[str, Any]]) -> dict[str, Region]:
    """The region of each parameter; ``ranked`` are the parameters of trials, the best first. Empty
    while there are too few trials."""
    best = ranked[: max(_LEAST, round(_SHARE * len(ranked)))]
    if len(ranked) < 2 * _LEAST:
        return {}
    names = dict.fromkeys(name for trial in best for name in trial)
    return {name: _region([trial[name] for trial in best if name in trial]) for name in names}


def _region(values: Sequence[Any]) -> Region:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        return Region(len(values), min(numbers), max(numbers))
    counts = Counter(map(str, values))
    most = max(counts.values())
    return Region(len(values), values=tuple(sorted(e for e, n in counts.items() if n == most)))
