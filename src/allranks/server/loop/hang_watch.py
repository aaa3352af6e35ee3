"""Detect hanging jobs, by what agents report of quiet ranks and by stacks requested from them.

All of this is in memory: agents repeat their reports, so a restarted server catches up within
seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from allranks import clock
from allranks.core.attempt_end import Failure
from allranks.core.diagnosis import hang_rules
from allranks.core.diagnosis.hang_rules import Rank, Suspicion
from allranks.core.distributions import topology
from allranks.server.loop.stacks import Answers, Stacks, running, time_of_day
from allranks.statuses import JobStatus
from allranks.store.jobs.job_rows import JobRow

log = logging.getLogger("allranks.hangs")

# Seconds after which an agent's report is outdated: agents report every four.
STALE = 9.0


class _Report(NamedTuple):
    """The last report of one node, in times of this process's monotonic clock. ``since`` says of
    each rank since when it has not printed, computed, moved data, or used a GPU."""

    at: float
    since: Mapping[int, tuple[float, float, float, float]]


class _Watch:
    """The state of one attempt of a job. ``ranks`` ran at the last check; none of them has ended
    since ``unchanged_since``. ``before`` are stacks to compare later ones with, ``pending`` those
    requested now; ``next_request`` is the earliest time of the next request."""

    def __init__(self, launch: int, attempt: int) -> None:
        self.attempt = (launch, attempt)
        self.nodes: dict[int, _Report] = {}
        self.ranks: set[int] = set()
        self.unchanged_since = -inf
        self.before: Answers | None = None
        self.pending: Answers | None = None
        self.next_request = 0.0


class Hangs:
    """Checks every job that has a hang timeout. Thread-safe."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._watches: dict[str, _Watch] = {}
        self._lock = threading.Lock()

    def record(
        self, job: str, launch: int, attempt: int, node: int, report: Mapping[str, Any]
    ) -> None:
        """Record a node's report of its quiet ranks: by rank the seconds since it printed,
        computed, moved data and used a GPU. Raises ValueError or TypeError for another shape."""
        now = time.monotonic()
        since = {}
        for rank, (printed, computed, moved, gpu) in report.items():
            ago = (printed, computed, moved, inf if gpu is None else gpu)
            since[int(rank)] = tuple(now - float(seconds) for seconds in ago)
        with self._lock:
            watch = self._watches.get(job)
            if watch is None or watch.attempt != (launch, attempt):
                watch = self._watches[job] = _Watch(launch, attempt)
            watch.nodes[node] = _Report(now, since)  # type: ignore[arg-type]

    def waits_for(self, job: str) -> bool:
        """Whether all stacks that a decision on the job waits for have arrived."""
        watch = self._watches.get(job)
        return watch is not None and watch.pending is not None and not watch.pending.missing

    def forget(self, row: JobRow) -> None:
        self._stacks.forget(row.name)
        with self._lock:
            self._watches.pop(row.name, None)

    def check(self, row: JobRow) -> Failure | None:
        """How the job hangs, or None; requests stacks if they are needed to decide."""
        timeout, watch = row.plan.task.hang_timeout, self._watches.get(row.name)
        if timeout is None or watch is None or row.record.status is not JobStatus.RUNNING:
            return None
        if watch.attempt != (row.record.launch, row.record.attempt):
            return None
        with self._lock:
            ranks = _working(row)
            if watch.ranks - ranks:
                watch.unchanged_since = time.monotonic()
            watch.ranks = ranks
            suspicion = hang_rules.suspicion(_quiet_ranks(watch), ranks, timeout)
            if suspicion is Suspicion.NONE:
                watch.before = watch.pending = None
                watch.next_request = 0.0
                return None
            return self._decide(row, watch, suspicion, timeout)

    def _decide(
        self, row: JobRow, watch: _Watch, suspicion: Suspicion, timeout: float
    ) -> Failure | None:
        now = time.monotonic()
        answers = watch.pending
        if answers is None:
            if now >= watch.next_request and not (suspicion is Suspicion.BEFORE and watch.before):
                watch.pending = self._stacks.request(row)
            return None
        if not answers.over:
            return None
        watch.pending = None
        if answers.missing:  # a node that does not answer is lost, or will be
            return None
        failure = None
        if suspicion is Suspicion.NOW:
            quiet = {
                rank: quiet for rank, quiet in _quiet_ranks(watch).items() if rank in watch.ranks
            }
            before = watch.before.processes if watch.before is not None else []
            failure = hang_rules.hung(
                quiet, before, answers.processes, timeout, clock.now(), time_of_day
            )
        if failure is not None:
            self._stacks.save(row.name, answers, "hang-stacks")
            log.warning("%s hangs: %s", row.name, failure.message)
        watch.before = answers
        watch.next_request = now + timeout / 2
        return failure


def _quiet_ranks(watch: _Watch) -> dict[int, Rank]:
    """The quiet ranks of nodes with a recent report. A rank that ends is progress for all ranks."""
    now = time.monotonic()
    return {
        rank: Rank(*(now - max(start, watch.unchanged_since) for start in since))
        for node in watch.nodes.values()
        if now - node.at < STALE
        for rank, since in node.since.items()
    }


def _working(row: JobRow) -> set[int]:
    """The running ranks, without services, which run until the others end."""
    nodes = set(running(row))
    done = {rank for node in row.record.nodes for rank in node.finished}
    return {
        process.rank
        for process in topology.ranks(row.plan.task)
        if process.node in nodes and not process.service and process.rank not in done
    }
