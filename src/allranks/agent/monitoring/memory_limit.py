"""Holds a job to the memory that it asked for, where nobody else does.

Looked at with every look of the monitor: who takes much within a second is found a second later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from allranks.agent.monitoring import process_usage
from allranks.agent.processes.rank_processes import Members

# The share of one CPU that counting exactly may take.
_SHARE = 0.01

# Told the bytes that are held and may be, and the rank that holds the most.
Exceeded = Callable[[int, int, int | None], None]


class MemoryLimit:
    """``most`` bytes for all processes of the job on this node; ``exceeded`` hears once that they
    hold more."""

    def __init__(self, most: int, exceeded: Exceeded) -> None:
        self.most, self._exceeded = most, exceeded
        self._again, self._over = 0.0, False

    def look(
        self, members: Members, ranks: Mapping[int, process_usage.Rank], resident: int
    ) -> None:
        """``resident`` counts what processes share for each of them, and files that are mapped:
        where it is more than the limit, it is counted again."""
        began = time.monotonic()
        if self._over or resident <= self.most or began < self._again:
            return
        held = process_usage.held(members.job)
        now = time.monotonic()
        self._again = now + (now - began) / _SHARE
        if held > self.most:
            self._over = True
            largest = max(ranks, key=lambda rank: ranks[rank].memory, default=None)
            self._exceeded(held, self.most, largest)
