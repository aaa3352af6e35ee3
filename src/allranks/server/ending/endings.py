"""End jobs whose processes are gone: explain, register and retain, then record it.

A loop hands over each job once and goes on; it is told of the outcome. Reading the logs of a failed
job, or removing a large folder, delays no job that is to start.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from allranks import disk_space
from allranks.core.lifecycle import decide
from allranks.core.lifecycle.fold import fold
from allranks.events import Event, Kind
from allranks.server.assets.working_folders import WorkingFolders
from allranks.server.ending.output_assets import register
from allranks.server.worker import Worker
from allranks.settings import Home
from allranks.statuses import VERDICTS, JobStatus, Reason
from allranks.store.assets import Assets
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.events import FinishedData


class Ending(NamedTuple):
    """A job to be ended. ``events``: those of its last step, which are recorded with the end.
    ``tell``: called with the outcome, in the thread of `Endings`."""

    row: JobRow
    events: Sequence[Event]
    tell: Callable[[Outcome], None]


class Outcome(NamedTuple):
    """How an ending went. ``saved``: the job after it; None if it has changed meanwhile, or for an
    ``error``: then it is decided on anew."""

    row: JobRow
    saved: JobRow | None
    error: Exception | None = None


class Endings(Worker):
    def __init__(
        self, home: Home, records: Records, data: Assets, working_folders: WorkingFolders
    ) -> None:
        super().__init__("endings", first=None)
        self._home, self._records = home, records
        self._data, self._working_folders = data, working_folders
        self._due: queue.SimpleQueue[Ending] = queue.SimpleQueue()

    def end_job(self, ending: Ending) -> None:
        """End it soon. May be called from any thread."""
        self._due.put(ending)
        self.wake()

    def look(self, names: set[str]) -> float | None:
        while not (self._due.empty() or self.ending.is_set()):
            ending = self._due.get()
            try:
                outcome = Outcome(ending.row, self._end(ending.row, ending.events))
            except Exception as error:
                outcome = Outcome(ending.row, None, error)
            ending.tell(outcome)
        return None

    def _end(self, row: JobRow, events: Sequence[Event]) -> JobRow | None:
        """Idempotent: a server that is killed here does it again."""
        record = functools.reduce(fold, events, row.record)
        over = row._replace(record=record)
        disk_space.release_if_full(self._home.root)
        result = self._result(over)
        completed = result["status"] is JobStatus.COMPLETED
        self._working_folders.set_aside(over, completed=completed)
        if completed:
            result = {**result, **register(over, self._data)}
        finished = over.event(Kind.FINISHED, data=result)
        return self._records.apply(
            row,
            [*events, finished],
            ended_at=finished.at - decide.unrecorded(fold(record, finished)),
            exit_code=result["exit_code"],
            error=result["error"],
        )

    def _result(self, row: JobRow) -> FinishedData:
        """How the job ended, as the FINISHED event records it and ``job show`` prints it."""
        failure = decide.outcome(row.record)
        outcome = VERDICTS[failure.reason].outcome
        code = 0 if failure.reason is Reason.DONE else failure.code
        if outcome is JobStatus.COMPLETED:
            return {"status": outcome, "exit_code": code, "error": None}
        from allranks.server.ending.failure import error_of  # lazy: many servers see no failure

        error = error_of(row, failure, self._records, self._home)
        return {"status": outcome, "exit_code": code, "error": error}
