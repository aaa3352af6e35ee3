"""The loop: lease a job, load it, decide, do one step outside any transaction, record it.

One thread for each cluster runs one: a cluster that is slow to answer holds up its own jobs alone.
It sleeps until something happened to a job, or, while any is live, until the next tick: then its
engine is asked once for all its gangs, and every live job of it is looked at.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

from allranks import clock
from allranks.engines.base import GangStatus, Handle
from allranks.errors import AllranksError, Refused
from allranks.events import Event, Kind
from allranks.plan.lifecycle import decide
from allranks.plan.lifecycle.decide import Step
from allranks.plan.plan import Gang
from allranks.server.assets.state_folders import States
from allranks.server.clusters.clusters import Cluster, Clusters
from allranks.server.jobs.output_assets import register
from allranks.server.jobs.result import result_of
from allranks.server.loop.agent_variables import AgentVariables
from allranks.server.loop.dead_agent_files import collect, dead
from allranks.server.loop.hangs import Hangs
from allranks.server.loop.heartbeats import Heartbeats
from allranks.server.loop.wakeups import Wakeups
from allranks.settings import Clocks, Home
from allranks.statuses import TERMINAL, GangState, JobStatus
from allranks.store.assets import Assets
from allranks.store.job_rows import JobRow
from allranks.store.metric_points import Points
from allranks.store.records import Records

log = logging.getLogger("allranks.loop")

# A lease on a job row outlives the slowest single step, which asks a cluster several times, and is
# short enough that another server need not wait long for what a dead one held.
LEASE = 120.0
# How long a gang that was submitted but never seen may stay unseen before "not there" counts.
SETTLE = 10.0
# How many times its own pace a cluster may go unasked.
_SLOWEST = 8
# How long the server waits for its loops to end.
_PATIENCE = 3.0


class Shared(NamedTuple):
    """What every loop works with."""

    home: Home
    records: Records
    points: Points
    clusters: Clusters
    invitation: AgentVariables
    bell: Wakeups
    pulse: Heartbeats
    clocks: Clocks
    data: Assets
    hangs: Hangs
    states: States


class Loops:
    """A loop for each cluster that has jobs, begun when the first comes. From any thread."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._records, self._clusters, self._bell = shared.records, shared.clusters, shared.bell
        self._loops: dict[Cluster, Loop] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Take up every job that has not ended, and what runs on this machine."""
        live = self._records.live()
        dead = self._left_over({_key(row) for row in live})
        for cluster in self._clusters.on_this_machine():
            self._of(cluster, dead)
        for row in live:
            try:
                self._of(self._clusters.cluster(row.plan))
            except (AllranksError, KeyError):
                log.exception("%s: nobody can see to it", row.name)

    def stop(self) -> None:
        with self._lock:
            loops = list(self._loops.values())
        for loop in loops:
            loop.end()
        # One that waits for a cluster's answer is not waited for: what it does may be done again.
        until = time.monotonic() + _PATIENCE
        for loop in loops:
            loop.join(until - time.monotonic())

    def wake(self, name: str) -> None:
        """Something happened to that job: look at it now, and tell those who wait for news."""
        row = self._records.latest(name) or self._records.get(name)
        self._of(self._clusters.cluster(row.plan)).wake(name)
        self._bell.ring(name)

    def _of(self, cluster: Cluster, left_over: Sequence[str] = ()) -> Loop:
        with self._lock:
            if cluster not in self._loops:
                self._loops[cluster] = Loop(cluster, self._shared, left_over)
                self._loops[cluster].start()
            return self._loops[cluster]

    def _left_over(self, live: Set[str]) -> list[str]:
        """Gangs that a server which was killed had no time to clean up after; looked for before
        any loop can start a new one."""
        return [each.name for each in self._shared.home.nodes.iterdir() if each.name not in live]


class Loop:
    """Runs from ``start`` until ``end``. ``wake`` may be called from any thread."""

    def __init__(self, cluster: Cluster, shared: Shared, left_over: Sequence[str] = ()) -> None:
        self._cluster, self._clusters = cluster, shared.clusters
        self._left_over = left_over
        self._engine = shared.clusters.engine(cluster)
        self._home, self._records, self._invitation = shared.home, shared.records, shared.invitation
        self._bell, self._pulse, self._clocks = shared.bell, shared.pulse, shared.clocks
        self._data, self._points, self._hangs = shared.data, shared.points, shared.hangs
        self._states = shared.states
        # The same for every server of this home, of which its lock allows one at a time: what one
        # that was killed had leased is its successor's at once.
        whose = f"{os.uname().nodename}:{shared.home.root}".encode()
        self._owner = hashlib.sha256(whose).hexdigest()
        self._woken: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._next_tick = self._next_poll = self._pace = 0.0
        self._ended: list[JobRow] = []
        self._thread = threading.Thread(target=self._run, name=f"loop {cluster.kind}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._woken.put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))

    def wake(self, name: str) -> None:
        """Something happened to that job: look at it now."""
        self._woken.put(name)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        live = True
        self._tidy()
        while True:
            woken = self._wait(self._clocks.tick if live or self._ended else None)
            if woken is None:
                self._clean()
                return
            try:
                if woken:
                    self._next_poll = self._pace = 0.0
                if woken and time.monotonic() < self._next_tick:
                    live = True  # as far as we know: the next tick looks
                    for name in woken:
                        self._guarded(self._look_at, self._records.get(name))
                    continue
                self._clean()
                rows = [row for row in self._records.live() if self._is_mine(row)]
                live = bool(rows)
                self._next_tick = time.monotonic() + self._clocks.tick
                self._ask(rows)
                for row in rows:
                    self._guarded(self._look_at, self._records.get(row.name))
            except Exception:
                # A full disk, a locked database: the record is as it was, the next tick tries
                # again. Nothing a job does may end the server.
                log.exception("the loop goes on after an error")
                live = True
                time.sleep(self._clocks.tick)

    def _guarded(self, act: Callable[..., None], row: JobRow, *more: Any) -> None:
        """Let no job that cannot be handled keep the others from being handled."""
        try:
            act(row, *more)
        except Exception:
            log.exception("%s: again at the next tick", row.name)

    def _wait(self, seconds: float | None) -> set[str] | None:
        """Names of jobs to look at; empty when the tick is due; None to end."""
        found: set[str] = set()
        try:
            left = None if seconds is None else max(0.0, self._next_tick - time.monotonic())
            first = self._woken.get(timeout=left)
            while True:
                if first is None:
                    return None
                found.add(first)
                first = self._woken.get_nowait()
        except queue.Empty:
            return found

    def _is_mine(self, row: JobRow) -> bool:
        return (
            row.plan.engine == self._cluster.kind
            and self._clusters.cluster(row.plan) == self._cluster
        )

    def _ask(self, rows: list[JobRow]) -> None:
        """What became of all gangs that are out there: one question. A cluster that many share is
        asked less and less often while nothing happens; agents' words come by themselves."""
        asked = {_key(row): row for row in rows if _is_out_there(row)}
        if not asked or time.monotonic() < self._next_poll:
            return
        self._pace = min(max(self._engine.pace, self._pace * 1.5), self._engine.pace * _SLOWEST)
        self._next_poll = time.monotonic() + self._pace
        try:
            told = self._engine.poll([_handle(row) for row in asked.values()])
        except Exception as error:
            # Whatever it was: jobs are decided upon all the same.
            if not isinstance(error, AllranksError):
                log.exception("%s could not be asked", self._cluster.kind)
            told = {key: GangStatus(GangState.UNKNOWN, str(error)) for key in asked}
        for key, seen in told.items():
            self._guarded(self._take_in, asked[key], seen)

    def _take_in(self, row: JobRow, seen: GangStatus) -> None:
        """Record what an engine says, after what the dead left on this disk: their word wins."""
        job, now = row.record, clock.now()
        happened = []
        if job.given_up and job.stopped_at is not None and seen.state is GangState.UNKNOWN:
            seen = GangStatus(GangState.GONE)  # its user does not wait for more
        never_seen = job.gang is GangState.ABSENT and job.stopped_at is None
        if seen.state is GangState.GONE and never_seen and now < (job.submitted_at or now) + SETTLE:
            return
        for node in dead(job, seen):
            collect(self._home, self._records, self._points, row, node)
            if seen.state is not GangState.GONE:
                why = seen.why if seen.state is not GangState.UP else ""
                data = {"why": why or "its agent is dead", **self._pulse.last(row, node)}
                happened.append(_event(row, Kind.LOST, node=node, data=data))
        at_work = job.status in (JobStatus.PREPARING, JobStatus.RUNNING)
        if seen.taken and at_work and all(node.reason is None for node in job.nodes):
            data = {"by": row.plan.engine, "message": seen.taken}
            happened.append(_event(row, Kind.PREEMPT_ASKED, data=data))
        if seen.paused:
            self._pulse.excuse(row)
        if job.stopped_at is not None and seen.state is GangState.GONE:
            seen = GangStatus(GangState.GONE)  # as we asked: whatever the cluster calls that
        news = seen.state not in (job.gang, GangState.UNKNOWN) or seen.why != job.why
        if news and job.gang is not GangState.GONE:
            self._pace = 0.0
            data = {"state": seen.state, "why": seen.why, "reason": seen.reason}
            happened.append(_event(row, Kind.SEEN, data=data))
        if happened:
            self._records.append(row.name, happened)
            self._bell.ring(row.name)

    def _look_at(self, row: JobRow) -> None:
        """Take every step there is to take now."""
        while row.record.status not in TERMINAL:
            step = decide.decide(row.record, row.plan.rules, self._clock(row))
            if step is None:
                return
            if step.effect == "submit" and (why := self._states.waits(row)):
                self._take_in(row, GangStatus(GangState.UNKNOWN, why))
                return
            # Only an effect needs a lease around it; what is only recorded is held by its version.
            if step.effect and self._records.claim(row.id, self._owner, LEASE) is None:
                return
            if not self._take(row, step):
                self._records.release(row.id, self._owner)
                return
            before, row = row, self._records.get(row.name)
            if row.version == before.version:
                return  # another holds it: the next tick looks again

    def _take(self, row: JobRow, step: Step) -> bool:
        """Do the step's effect, then record it; False when the effect has to wait."""
        try:
            event = self._do(row, step)
        except AllranksError as error:
            log.warning("%s: %s did not work, again soon: %s", row.name, step.event, error)
            self._take_in(row, GangStatus(GangState.UNKNOWN, error.message))
            return False
        columns: dict[str, Any] = {}
        if event.kind is Kind.FINISHED:
            columns = {
                "ended_at": event.at,
                "exit_code": event.data["exit_code"],
                "error": event.data["error"],
            }
        saved = self._records.apply(row, self._owner, [event], **columns)
        self._bell.ring(row.name)
        if saved is not None and event.kind in (Kind.FINISHED, Kind.RELAUNCHED):
            self._ended.append(row)
        return True

    def _do(self, row: JobRow, step: Step) -> Event:
        engine = self._engine
        if step.effect == "submit":
            try:
                handle = engine.submit(self._gang(row))
            except Refused as error:
                return _event(row, Kind.REFUSED, data={"message": error.message})
            return _event(row, step.event, data=handle._asdict())
        if step.effect == "stop":
            try:
                engine.stop(_handle(row))
            except AllranksError:
                if not row.record.given_up:
                    raise
            # Only now is nothing written any more.
            for node in range(len(row.record.nodes)):
                collect(self._home, self._records, self._points, row, node)
            self._next_tick = self._next_poll = self._pace = 0.0  # gone by now, most likely
            return _event(row, step.event)
        if step.event is Kind.FINISHED:
            ended = result_of(row, self._records, self._home)
            if ended["status"] is JobStatus.COMPLETED:
                ended |= register(row, self._data)
            return _event(row, step.event, data=ended)
        data = step.data
        if step.event is Kind.LOST and step.node is not None:
            data = {**data, **self._pulse.last(row, step.node)}
        return _event(row, step.event, node=step.node, data=data)

    def _gang(self, row: JobRow) -> Gang:
        return row.plan.gang._replace(key=_key(row), env=self._invitation(row))

    def _clean(self) -> None:
        """After the end of a launch nothing of it stays, at the engine or on this disk. Done at
        the next tick: agents that have just said bye are then gone by themselves."""
        ended, self._ended = self._ended, []
        for row in ended:
            try:
                self._forget(row)
            except AllranksError as error:
                log.warning("%s: cleaned up again at the next tick: %s", row.name, error)
                self._ended.append(row)
            except Exception:
                log.exception("%s: cleaned up again at the next tick", row.name)
                self._ended.append(row)

    def _forget(self, row: JobRow) -> None:
        self._engine.stop(_handle(row))
        shutil.rmtree(self._home.nodes / _key(row), ignore_errors=True)
        self._pulse.forget(row)
        self._hangs.forget(row)
        self._states.forget(row)

    def _tidy(self) -> None:
        """What a server that was killed had no time to clean up after."""
        try:
            for key in self._left_over:
                self._engine.stop(Handle(key))
                shutil.rmtree(self._home.nodes / key, ignore_errors=True)
        except Exception:
            log.exception("not everything could be cleaned up")

    def _clock(self, row: JobRow) -> decide.Clock:
        clocks, pulse = row.plan.rules.clocks(self._clocks), self._pulse
        silent = pulse.silent(row) if self._invitation.stands(row) else frozenset[int]()
        hung = self._hangs.look(row)
        return decide.Clock(clock.now(), silent, clocks.hello, clocks.grace, pulse.since(), hung)


def _event(row: JobRow, kind: Kind, *, node: int | None = None, data: Any = None) -> Event:
    record = row.record
    return Event(kind, clock.now(), record.launch, record.attempt, node, data=data or {})


def _key(row: JobRow) -> str:
    return f"{row.name}.{row.record.launch}"


def _handle(row: JobRow) -> Handle:
    return Handle(_key(row), row.record.ref)


def _is_out_there(row: JobRow) -> bool:
    return row.record.status is not JobStatus.NOT_STARTED and row.record.gang is not GangState.GONE
