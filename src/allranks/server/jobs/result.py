"""The result of an ended job, as its record stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allranks.core.lifecycle import decide
from allranks.settings import Home
from allranks.statuses import VERDICTS, JobStatus, Reason
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.events import FinishedData


def result_of(row: JobRow, records: Records, home: Home) -> FinishedData:
    """How the job ended, as the FINISHED event records it and ``job show`` prints it."""
    failure = decide.outcome(row.record)
    outcome = VERDICTS[failure.reason].outcome
    code = 0 if failure.reason is Reason.DONE else failure.code
    if outcome is JobStatus.COMPLETED:
        return {"status": outcome, "exit_code": code, "error": None}
    from allranks.server.jobs.failure import error_of  # lazy: many servers see no failure

    error = error_of(row, failure, records, home)
    return {"status": outcome, "exit_code": code, "error": error}
