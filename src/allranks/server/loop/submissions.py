"""Which jobs may be submitted now: a queue that is full is kept full, and not asked by each job."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from allranks.core.lifecycle.submit_limit import (
    SubmitLimit,
    after_accepted,
    after_refused,
    may_submit,
)
from allranks.core.plan import Gang
from allranks.engines.base import QueueFull
from allranks.statuses import GangState, JobStatus
from allranks.store.jobs.job_rows import JobRow

log = logging.getLogger("allranks.loop")


class Submissions:
    """For one thread; in memory, because a new server learns the limits by one refusal each.
    ``queue_of``: gangs with the same one share limits."""

    def __init__(self, queue_of: Callable[[Gang], str]) -> None:
        self._queue_of = queue_of
        self._limits: dict[str, SubmitLimit] = {}
        self._messages: dict[str, str] = {}
        self._queued = Counter[str]()

    def count(self, rows: Sequence[JobRow]) -> None:
        """Count the gangs that each queue has."""
        self._queued = Counter(self._queue(row) for row in rows if is_submitted(row))

    def waits(self, row: JobRow, in_order: bool) -> str:
        """Why the job is not submitted now; empty if it is. Only ``in_order``, the oldest first,
        may jobs be submitted to a queue that was full."""
        queue = self._queue(row)
        limit = self._limits.get(queue)
        if limit is None:
            return ""
        if in_order and may_submit(limit, self._queued[queue], time.monotonic()):
            return ""
        return self._messages[queue]

    def accepted(self, row: JobRow) -> None:
        queue = self._queue(row)
        if limit := self._limits.get(queue):
            self._limits[queue] = after_accepted(limit, self._queued[queue], time.monotonic())
        self._queued[queue] += 1

    def refused(self, row: JobRow, error: QueueFull) -> None:
        queue = self._queue(row)
        if queue not in self._limits:
            log.warning("%s: waits for room, and others with it: %s", row.key, error.message)
        limit = self._limits.get(queue, SubmitLimit())
        self._limits[queue] = after_refused(limit, self._queued[queue], time.monotonic())
        self._messages[queue] = error.message

    def _queue(self, row: JobRow) -> str:
        return f"{row.plan.compute}/{self._queue_of(row.plan.gang)}"


def is_submitted(row: JobRow) -> bool:
    """Whether its gang has been submitted, and is not known to be gone."""
    return row.record.status is not JobStatus.NOT_STARTED and row.record.gang is not GangState.GONE
