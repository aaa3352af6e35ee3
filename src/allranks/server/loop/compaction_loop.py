"""A thread that compacts what ended jobs have told, from ``start`` until ``stop``."""

from __future__ import annotations

import logging
import threading

from sqlalchemy import Engine

from allranks.store.compaction import compact

log = logging.getLogger("allranks.compaction")

# Seconds between two passes, and after a job's end, when its agents have said all.
PACE, QUIET = 300.0, 60.0


class CompactionLoop:
    def __init__(self, database: Engine, pace: float = PACE, quiet: float = QUIET) -> None:
        self._database, self._pace, self._quiet = database, pace, quiet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._pace):
            try:
                compact(self._database, self._quiet, self._over)
            except Exception:
                # Rows are as good: the next pass tries again.
                log.exception("compaction failed; retrying later")
