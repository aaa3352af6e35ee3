"""Compacts the points and events of ended jobs."""

from __future__ import annotations

from sqlalchemy import Engine

from allranks.server.worker import Worker
from allranks.store.compaction import compact

# Seconds between two passes, and after a job's end, when its agents have sent everything.
PACE, MIN_AGE = 300.0, 60.0


class CompactionLoop(Worker):
    def __init__(self, database: Engine, pace: float = PACE, min_age: float = MIN_AGE) -> None:
        super().__init__("compaction", first=pace, retry=pace)
        self._database, self._pace, self._min_age = database, pace, min_age

    def look(self, names: set[str]) -> float:
        compact(self._database, self._min_age, self.ending)
        return self._pace
