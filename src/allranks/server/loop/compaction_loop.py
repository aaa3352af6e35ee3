"""A thread that compacts the points and events of ended jobs, from ``start`` until ``stop``."""

from __future__ import annotations

import logging
import threading

from sqlalchemy import Engine

from allranks.store.compaction import compact

log = logging.getLogger("allranks.compaction")

# Seconds between two passes, and after a job's end, when its agents have sent everything.
PACE, MIN_AGE = 300.0, 60.0


class CompactionLoop:
    def __init__(self, database: Engine, pace: float = PACE, min_age: float = MIN_AGE) -> None:
        self._database, self._pace, self._min_age = database, pace, min_age
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._pace):
            try:
                compact(self._database, self._min_age, self._stopping)
            except Exception:
                # Rows are as good: the next pass tries again.
                log.exception("compaction failed; retrying later")
