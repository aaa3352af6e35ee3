"""Ask a cluster for the states of gangs, and record what it says."""

from __future__ import annotations

import logging
import time

from allranks import clock
from allranks.core.lifecycle import decide
from allranks.engines.base import Engine, GangStatus, Handle
from allranks.errors import AllranksError
from allranks.events import Event, Kind
from allranks.server.loop.dead_agent_files import collect, dead
from allranks.server.loop.loop_services import LoopServices
from allranks.server.loop.submissions import is_submitted
from allranks.statuses import GangState, JobStatus
from allranks.store.jobs.job_rows import JobRow

log = logging.getLogger("allranks.loop")

# Seconds after submission during which a gang that the cluster does not list yet is not GONE.
SETTLE = 10.0
# While nothing happens, polls slow down to at most this many times the engine's pace.
_MAX_SLOWDOWN = 8
# The least time between two polls, in times that the last one took: with thousands of queued jobs
# polls would otherwise take all of it.
_REST = 10.0


class GangStatuses:
    """The states of one cluster's gangs. For one thread."""

    def __init__(self, engine: Engine, kind: str, services: LoopServices) -> None:
        self._engine = engine
        self._kind = kind
        self._services = services
        self._next_poll = 0.0
        self._pace = 0.0
        # When the engine last reported each gang, by key, and it was not gone.
        self._alive: dict[str, float] = {}

    def last_alive(self, row: JobRow) -> float | None:
        """When the engine last reported the job's gang, and it was not gone; when it was submitted
        if it never did."""
        return self._alive.get(row.key, row.record.submitted_at)

    def forget(self, key: str) -> None:
        self._alive.pop(key, None)

    def hurry(self) -> None:
        """Poll at the next tick: something has happened."""
        self._next_poll = self._pace = 0.0

    def poll(self, rows: list[JobRow]) -> None:
        """Poll the engine once for all submitted gangs. While nothing changes, a shared cluster is
        polled less and less often; agents report by themselves."""
        if not any(map(is_submitted, rows)) or time.monotonic() < self._next_poll:
            return
        pace = self._engine.pace
        self._pace = min(max(pace, self._pace * 1.5), pace * _MAX_SLOWDOWN)
        began = time.monotonic()
        self._next_poll = began + self._pace
        self.poll_now(rows)
        took = time.monotonic() - began
        self._next_poll = max(self._next_poll, began + took + took * _REST)

    def poll_now(self, rows: list[JobRow]) -> None:
        submitted = {row.key: row for row in rows if is_submitted(row)}
        if not submitted:
            return
        try:
            statuses = self._engine.poll([handle_of(row) for row in submitted.values()])
        except Exception as error:
            # Jobs are still decided on, whatever the error.
            if not isinstance(error, AllranksError):
                log.exception("%s could not be polled", self._kind)
            statuses = {key: GangStatus(GangState.UNKNOWN, str(error)) for key in submitted}
        now = clock.now()
        for key, status in statuses.items():
            if status.state not in (GangState.GONE, GangState.UNKNOWN):
                self._alive[key] = now
            if not _still_waits(submitted[key], status):
                self._record_or_log(submitted[key], status)

    def first_events(self, row: JobRow) -> list[Event]:
        """What an engine that is polled at no cost reports of a gang it was sent just now."""
        if self._engine.pace:
            return []
        return self._events_of(row, self._engine.poll([handle_of(row)])[row.key])

    def record(self, row: JobRow, status: GangStatus) -> None:
        """Record what the engine reports, after the files of dead agents: those take precedence."""
        if events := self._events_of(row, status):
            self._services.records.append(row.name, events)
            self._services.wakeups.notify(row.name)

    def _events_of(self, row: JobRow, status: GangStatus) -> list[Event]:
        job, now = row.record, clock.now()
        events = list[Event]()
        if job.given_up and job.stopped_at is not None and status.state is GangState.UNKNOWN:
            status = GangStatus(GangState.GONE)  # canceled with --force
        never_seen = job.gang is GangState.ABSENT and job.stopped_at is None
        is_new = now < (job.submitted_at or now) + SETTLE
        if status.state is GangState.GONE and never_seen and is_new:
            return events
        for node in dead(job, status):
            collect(self._services.home, self._services.records, self._services.points, row, node)
            if status.state is not GangState.GONE:
                why = status.why if status.state is not GangState.UP else ""
                last_seen = self._services.heartbeats.last_seen(row, node)
                data = {"why": why or "its agent is dead", **last_seen}
                events.append(row.event(Kind.LOST, node=node, data=data))
        preemptible = job.status in (JobStatus.PREPARING, JobStatus.RUNNING)
        if status.taken and preemptible and all(node.reason is None for node in job.nodes):
            data = {"by": row.plan.engine, "message": status.taken}
            events.append(row.event(Kind.PREEMPT_ASKED, data=data))
        if status.paused:
            self._services.heartbeats.record_all(row)
        if job.stopped_at is not None and status.state is GangState.GONE:
            status = GangStatus(GangState.GONE)  # we stopped it: its reason does not matter
        changed = status.state not in (job.gang, GangState.UNKNOWN) or status.why != job.why
        if changed and job.gang is not GangState.GONE:
            self._pace = 0.0
            data = {"state": status.state, "why": status.why, "reason": status.reason}
            events.append(row.event(Kind.SEEN, data=data))
        return events

    def _record_or_log(self, row: JobRow, status: GangStatus) -> None:
        """An error of one job keeps no other from being handled."""
        try:
            self.record(row, status)
        except Exception:
            log.exception("%s: failed; retrying at the next tick", row.name)


def handle_of(row: JobRow) -> Handle:
    """The engine's handle of the job's gang."""
    return Handle(row.key, row.record.ref, ended=decide.ranks_ended(row.record))


def _still_waits(row: JobRow, status: GangStatus) -> bool:
    """Whether the status of a job in the queue is the one that its record has."""
    job = row.record
    queued = status.state is GangState.QUEUED and job.gang is GangState.QUEUED
    return queued and decide.waits(job) and status == GangStatus(GangState.QUEUED, job.why)
