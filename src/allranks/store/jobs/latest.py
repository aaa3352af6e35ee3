"""The newest version of jobs in memory, so that neither a tick nor a request decodes them again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from allranks.statuses import TERMINAL
from allranks.store.jobs.job_rows import JobRow

# Ended jobs that are kept, besides all live ones; and names of deleted ones.
_ENDED, _DELETED = 512, 10_000


class Latest:
    """Thread-safe. Relies on one server for each database. ``read_live`` reads the live jobs from
    it, once."""

    def __init__(self, read_live: Callable[[], Iterable[JobRow]]) -> None:
        self._read_live = read_live
        self._rows: dict[str, JobRow] = {}
        # The names of ended jobs in the order of their end, and those of live ones by id.
        self._ended: dict[str, None] = {}
        self._live: dict[int, str] | None = None
        # Who has read one of these before it was deleted must not bring it back. Names are not
        # reused.
        self._deleted: dict[str, None] = {}
        self._lock = threading.RLock()

    def get(self, name: str) -> JobRow | None:
        return self._rows.get(name)

    def live(self) -> list[JobRow]:
        """The jobs that have not ended, oldest first, without damaged ones."""
        with self._lock:
            live = self._live_names()
            return [self._rows[live[job_id]] for job_id in sorted(live)]

    def any_live(self) -> bool:
        with self._lock:
            return bool(self._live_names())

    def keep(self, row: JobRow) -> JobRow:
        """Keep a job that was read or written; the newest version of it, because a thread that has
        read an older one must not replace that."""
        with self._lock:
            if row.name in self._deleted:
                return row
            kept = self._rows.get(row.name)
            if kept is not None and kept.version >= row.version:
                row = kept
            self._rows[row.name] = row
            if row.record.status not in TERMINAL:
                self._ended.pop(row.name, None)
                if self._live is not None:
                    self._live[row.id] = row.name
                return row
            if self._live is not None:
                self._live.pop(row.id, None)
            self._ended[row.name] = None
            while len(self._ended) > _ENDED:
                oldest = next(iter(self._ended))
                del self._ended[oldest], self._rows[oldest]
        return row

    def forget(self, name: str) -> None:
        """Forget a deleted job."""
        with self._lock:
            row = self._rows.pop(name, None)
            self._ended.pop(name, None)
            self._deleted[name] = None
            if len(self._deleted) > _DELETED:
                del self._deleted[next(iter(self._deleted))]
            if row is not None and self._live is not None:
                self._live.pop(row.id, None)

    def _live_names(self) -> dict[int, str]:
        if self._live is None:
            rows = list(self._read_live())
            self._live = {}
            for row in rows:
                self.keep(row)
        return self._live
