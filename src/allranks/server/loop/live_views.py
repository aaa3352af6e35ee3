"""Whose resource use somebody looks at: agents of such jobs send it at once, others in batches."""

from __future__ import annotations

import time
from collections.abc import Iterable

# Seconds for which a look counts. Longer than agents' batches and their requests for orders are
# apart: a page that is open asks again when a batch has come.
LOOK = 30.0


class LiveViews:
    """In memory: who looks on after a restart asks again. Thread-safe."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def look(self, jobs: Iterable[str]) -> None:
        """Record that somebody looks at these jobs."""
        now = time.monotonic()
        known = {job: until for job, until in self._until.copy().items() if until > now}
        self._until = known | dict.fromkeys(jobs, now + LOOK)

    def are_open(self, job: str) -> bool:
        """Whether somebody looks at the job."""
        return self._until.get(job, 0.0) > time.monotonic()
