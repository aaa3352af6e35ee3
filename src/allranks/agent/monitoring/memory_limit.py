"""Enforce the memory that a job requested, where the engine does not.

Checked with every sample of the monitor, once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from allranks.agent.monitoring import process_usage
from allranks.agent.processes.rank_processes import Members

# The maximum share of one CPU for exact measurements.
_SHARE = 0.01

# Called with the bytes in use, the limit, and the rank that holds the most.
Exceeded = Callable[[int, int, int | None], None]


class MemoryLimit:
    """``most`` bytes for all processes of the job on this node. ``exceeded`` is called once if they
    hold more."""

    def __init__(self, most: int, exceeded: Exceeded) -> None:
        self.most, self._exceeded = most, exceeded
        self._again, self._over = 0.0, False

    def look(
        self, members: Members, ranks: Mapping[int, process_usage.Rank], resident: int
    ) -> None:
        """Check the limit. ``resident`` is an upper bound, which counts shared memory once for each
        process, and mapped files: if it exceeds the limit, memory is measured exactly."""
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
