"""End sessions that nobody uses, and say so before: in the record, and in open shells."""

from __future__ import annotations

import time
from collections.abc import Iterator

from allranks import clock
from allranks.core.job import sessions
from allranks.core.job.sessions import Notice
from allranks.events import Kind
from allranks.server.loop.channels import Channels
from allranks.server.loop.loops import Loops
from allranks.server.sessions.engine import SessionEngine
from allranks.server.worker import Worker
from allranks.spec.job_parts import Session
from allranks.statuses import JobStatus
from allranks.store.jobs.job_rows import COMMAND, JobRow
from allranks.store.jobs.records import Records

# Seconds between two looks; less for a session with a short idle time.
_PACE, _PARTS = 5.0, 8


class IdleSessions(Worker):
    """A new server counts no time before its start as idle: nobody could use a session then."""

    def __init__(
        self, records: Records, channels: Channels, engine: SessionEngine, loops: Loops
    ) -> None:
        super().__init__("idle sessions", retry=_PACE)
        self._records, self._channels, self._engine = records, channels, engine
        self._loops = loops
        # When each running session was last seen in use, and what it was warned of since.
        self._used: dict[str, float] = {}
        self._warned: dict[str, set[str]] = {}

    def look(self, names: set[str]) -> float:
        pace = _PACE
        running = dict(self._running())
        for row in running.values():
            pace = min(pace, (_session(row).idle_timeout or 60.0) / _PARTS)
            if (due := self._look_at(row)) is not None:
                self._tell(row, due)
        for name in [*self._used.keys() - running.keys()]:
            del self._used[name], self._warned[name]
        return pace

    def _running(self) -> Iterator[tuple[str, JobRow]]:
        for row in self._records.live():
            session = row.spec.get("session") if row.type == COMMAND else None
            if session is not None and row.record.status is JobStatus.RUNNING:
                yield row.name, row

    def _look_at(self, row: JobRow) -> Notice | None:
        now, name = time.monotonic(), row.name
        before = self._used.setdefault(name, now)
        warned = self._warned.setdefault(name, set())
        used = max(before, self._channels.last_used(name) or 0.0)
        used = now if self._engine.has_guests(name) else used
        if used > before:
            self._used[name] = used
            warned.discard("idle")
        began = now - max(0.0, clock.now() - (row.record.went_at or clock.now()))
        due = sessions.notice(_session(row), began, used, now, [*warned])
        if due is not None:
            warned.add(due.about)
        return due

    def _tell(self, row: JobRow, due: Notice) -> None:
        self._channels.tell(row.name, f"{row.name}: {due.text}")
        events = [row.event(Kind.NOTICE, data={"by": "server", "message": due.text})]
        if due.ends:
            events.append(row.event(Kind.CANCEL_ASKED))
        self._records.append(row.name, events)
        self._loops.wake(row.name)


def _session(row: JobRow) -> Session:
    """The session's key with its defaults, which the record leaves out."""
    return Session.model_validate(row.spec["session"])
