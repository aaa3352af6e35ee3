"""Ranks that resume training at different steps, by the metrics that they print. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from allranks.core.text import printable


class Steps(NamedTuple):
    """The first and last step of a rank's metric in an attempt."""

    first: int
    last: int


def sentence(metric: str, earlier: Mapping[int, Steps], now: Mapping[int, int]) -> str:
    """That ranks began the attempt at different steps of a ``metric``, for a person; '' if they did
    not. ``earlier``: the steps of ranks in the attempt before; ``now``: their first ones."""
    if len({*now.values()}) < 2:
        return ""
    if len({earlier[rank].first for rank in now if rank in earlier}) > 1:
        return ""  # ranks never print the same steps
    # Points without a step are counted on from the attempt before.
    if all(rank in earlier and step == earlier[rank].last + 1 for rank, step in now.items()):
        return ""
    ahead = max(now, key=lambda rank: (now[rank], -rank))
    behind = min(now, key=lambda rank: (now[rank], rank))
    return (
        f"ranks resumed apart: rank {ahead} went on at step {now[ahead]} of {printable(metric)}, "
        f"rank {behind} at step {now[behind]}"
    )
