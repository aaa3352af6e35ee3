"""Append what agents report to the records: the events that arrive while one transaction runs share
the next one.

A transaction writes a job's whole record. If each of hundreds of nodes had its own, the start of a
gang would take the square of their number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from allranks.events import Event
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

log = logging.getLogger("allranks.loop")


class _Request(NamedTuple):
    job: str
    events: Sequence[Event]
    outcome: asyncio.Future[JobRow]


class EventBatches:
    """For the server's event loop. ``appended`` is called with each job that may have changed."""

    def __init__(self, records: Records, appended: Callable[[str], None]) -> None:
        self._records, self._appended = records, appended
        self._waiting: list[_Request] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, job: str, events: Sequence[Event]) -> JobRow:
        """Append events in their order; the job after them. Raises like ``Records.append``."""
        request = _Request(job, events, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await request.outcome

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            outcomes = await asyncio.to_thread(self._append, batch)
            for request, outcome in zip(batch, outcomes, strict=True):
                if request.outcome.done():
                    continue  # its agent has disconnected
                if isinstance(outcome, BaseException):
                    request.outcome.set_exception(outcome)
                else:
                    request.outcome.set_result(outcome)
            for name in {each.job for each in batch}:
                try:
                    self._appended(name)
                except Exception:
                    log.exception("%s: not woken; the next tick looks at it", name)

    def _append(self, batch: Sequence[_Request]) -> list[JobRow | Exception]:
        """The outcome of each request. If they fail together, each has a transaction of its own,
        because an agent drops an event that is refused."""
        together: dict[str, list[Event]] = {}
        for request in batch:
            together.setdefault(request.job, []).extend(request.events)
        try:
            rows = self._records.append_all(together)
            return [rows[request.job] for request in batch]
        except Exception as error:
            if len(batch) == 1:
                return [error]
        return [outcome for request in batch for outcome in self._append([request])]
