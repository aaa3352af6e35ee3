"""Whether jobs hang: what their agents tell of quiet ranks, and the stacks that are asked for then.

All of it is in memory. Agents go on telling as long as there is something to tell: a server that
was started a moment ago knows as much as the last one within seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from allranks import clock
from allranks.plan.attempt_end import Failure
from allranks.plan.diagnosis import hangs
from allranks.plan.diagnosis.hangs import Rank, Suspicion
from allranks.plan.distributions import topology
from allranks.server.loop.stacks import Answers, Stacks, running
from allranks.statuses import JobStatus
from allranks.store.job_rows import JobRow

log = logging.getLogger("allranks.hangs")

# Seconds after which what an agent has told is too old to go by: it tells every four.
STALE = 9.0


class _Told(NamedTuple):
    """Of one node; times are of the monotonic clock here."""

    at: float
    since: Mapping[int, tuple[float, float, float, float]]


class _Watch:
    """What is known of one attempt of a job. ``ranks`` are those that ran when it was last looked
    at, and did so since ``same``: where one has ended the others have yet to notice. ``before`` are
    stacks to hold later ones against, ``asked`` those that are asked for now, ``again`` when they
    may be next."""

    def __init__(self, launch: int, attempt: int) -> None:
        self.which = (launch, attempt)
        self.nodes: dict[int, _Told] = {}
        self.ranks: set[int] = set()
        self.same = -inf
        self.before: Answers | None = None
        self.asked: Answers | None = None
        self.again = 0.0


class Hangs:
    """Of every job that has a hang timeout. From any thread."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._watches: dict[str, _Watch] = {}
        self._lock = threading.Lock()

    def told(self, job: str, launch: int, attempt: int, node: int, said: Mapping[str, Any]) -> None:
        """What a node says of its quiet ranks: seconds since each printed, computed, moved data,
        and since a GPU of its was busy. Raises ValueError or TypeError when it says something else.
        """
        now = time.monotonic()
        since = {}
        for rank, (printed, computed, moved, gpu) in said.items():
            ago = (printed, computed, moved, inf if gpu is None else gpu)
            since[int(rank)] = tuple(now - float(each) for each in ago)
        with self._lock:
            watch = self._watches.get(job)
            if watch is None or watch.which != (launch, attempt):
                watch = self._watches[job] = _Watch(launch, attempt)
            watch.nodes[node] = _Told(now, since)  # type: ignore[arg-type]

    def waits_for(self, job: str) -> bool:
        """Whether stacks of it are what a decision waits for."""
        watch = self._watches.get(job)
        return watch is not None and watch.asked is not None and not watch.asked.missing

    def forget(self, row: JobRow) -> None:
        self._stacks.forget(row.name)
        with self._lock:
            self._watches.pop(row.name, None)

    def look(self, row: JobRow) -> Failure | None:
        """How the job hangs, if it does; asks for stacks where those have to tell."""
        timeout, watch = row.plan.task.hang_timeout, self._watches.get(row.name)
        if timeout is None or watch is None or row.record.status is not JobStatus.RUNNING:
            return None
        if watch.which != (row.record.launch, row.record.attempt):
            return None
        with self._lock:
            ranks = _working(row)
            if watch.ranks - ranks:
                watch.same = time.monotonic()
            watch.ranks = ranks
            suspicion = hangs.suspicion(_of(watch), ranks, timeout)
            if suspicion is Suspicion.NONE:
                watch.before = watch.asked = None
                watch.again = 0.0
                return None
            return self._decided(row, watch, suspicion, timeout)

    def _decided(
        self, row: JobRow, watch: _Watch, suspicion: Suspicion, timeout: float
    ) -> Failure | None:
        now = time.monotonic()
        answers = watch.asked
        if answers is None:
            if now >= watch.again and not (suspicion is Suspicion.BEFORE and watch.before):
                watch.asked = self._stacks.ask(row)
            return None
        if not answers.over:
            return None
        watch.asked = None
        if answers.missing:  # who does not answer now is lost, or will
            return None
        found = None
        if suspicion is Suspicion.NOW:
            told = {rank: each for rank, each in _of(watch).items() if rank in watch.ranks}
            before = watch.before.processes if watch.before is not None else []
            found = hangs.hung(told, before, answers.processes, timeout, clock.now())
        if found is not None:
            self._stacks.keep(row.name, answers, "hang-stacks")
            log.warning("%s hangs: %s", row.name, found.message)
        watch.before = answers
        watch.again = now + timeout / 2
        return found


def _of(watch: _Watch) -> dict[int, Rank]:
    """The quiet ranks of nodes that were heard of it lately. That one ends is progress of all."""
    now = time.monotonic()
    return {
        rank: Rank(*(now - max(each, watch.same) for each in since))
        for node in watch.nodes.values()
        if now - node.at < STALE
        for rank, since in node.since.items()
    }


def _working(row: JobRow) -> set[int]:
    """The ranks that run and have an end of their own."""
    nodes = set(running(row))
    done = {rank for node in row.record.nodes for rank in node.finished}
    return {
        each.rank
        for each in topology.ranks(row.plan.task)
        if each.node in nodes and not each.service and each.rank not in done
    }
