"""The loop: lease a job, load it, decide, do one step outside any transaction, record it.

One thread runs it. It sleeps until something happened to a job, or, while any is live, until the
next tick: then every engine is asked once for all its gangs, and every live job is looked at.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from allranks.engines.base import Engine, Handle, Seen
from allranks.errors import AllranksError, Refused
from allranks.events import Event, Kind
from allranks.plan import distributions, policy
from allranks.plan.plan import Gang
from allranks.plan.policy import Step
from allranks.server.auth import Auth
from allranks.server.bell import Bell
from allranks.server.salvage import salvage
from allranks.settings import Clocks, Home
from allranks.states import (
    SIGNALS,
    TERMINAL,
    VERDICTS,
    GangState,
    JobStatus,
    NodeState,
    Reason,
    Verdict,
)
from allranks.store.records import JobRow, Records

log = logging.getLogger("allranks.loop")

# A lease on a job row outlives the slowest single step by far, and is short enough that another
# server need not wait long for what a dead one held.
LEASE = 60.0
# How long a gang that was submitted but never seen may stay unseen before "not there" counts.
SETTLE = 10.0


class Heard(NamedTuple):
    job: str
    launch: int
    node: int


class Loop:
    """Runs until ``stop``. ``wake`` and ``heard`` may be called from any thread."""

    def __init__(
        self,
        home: Home,
        records: Records,
        engines: Mapping[str, Engine],
        auth: Auth,
        bell: Bell,
        clocks: Clocks,
        url: str,
    ) -> None:
        self._home, self._records, self._engines = home, records, engines
        self._auth, self._bell, self._clocks, self._url = auth, bell, clocks, url
        # The same for every server of this home, of which its lock allows one at a time: what one
        # that was killed had leased is its successor's at once.
        self._owner = hashlib.sha256(f"{os.uname().nodename}:{home.root}".encode()).hexdigest()
        self._woken: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # Leases of agents are kept here, not in the record: a server that was away must not
        # blame them for its own absence, so every lease starts afresh with it.
        self._last: dict[Heard, float] = {}
        self._born = self._awake = time.monotonic()
        self._next_tick = 0.0
        self._ended: list[JobRow] = []
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._woken.put(None)
        self._thread.join()

    def wake(self, name: str) -> None:
        """Something happened to that job: look at it now, and tell those who wait for news."""
        self._woken.put(name)
        self._bell.ring(name)

    def heard(self, job: str, launch: int, node: int) -> None:
        """The agent of that node is alive."""
        self._last[Heard(job, launch, node)] = time.monotonic()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        live = True
        try:
            self._forget_the_dead()
        except Exception:
            log.exception("not everything could be cleaned up")
        while True:
            woken = self._wait(self._clocks.tick if live else None)
            if woken is None:
                self._clean()
                return
            self._mind_the_gap()
            try:
                if woken and time.monotonic() < self._next_tick:
                    live = True  # as far as we know: the next tick looks
                    for name in woken:
                        self._guarded(self._look_at, self._records.get(name))
                    continue
                self._clean()
                rows = self._records.live()
                live = bool(rows)
                self._next_tick = time.monotonic() + self._clocks.tick
                self._ask_engines(rows)
                for row in rows:
                    self._guarded(self._look_at, self._records.get(row.name))
            except Exception:
                # A full disk, a locked database: the record is as it was, the next tick tries
                # again. Nothing a job does may end the server.
                log.exception("the loop goes on after an error")
                live = True
                time.sleep(self._clocks.tick)

    def _mind_the_gap(self) -> None:
        """A server that was stopped for a while (paused, swapped out) heard nobody meanwhile: it
        begins to listen anew, as one that was started."""
        now = time.monotonic()
        if now - self._awake > self._clocks.lease / 2:
            self._born = now
            self._last.clear()
        self._awake = now

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

    def _ask_engines(self, rows: list[JobRow]) -> None:
        for name, engine in self._engines.items():
            asked = {
                _key(row): row for row in rows if row.plan.engine == name and _is_out_there(row)
            }
            if not asked:
                continue
            try:
                told = engine.poll([Handle(key) for key in asked])
            except AllranksError as error:
                log.warning("%s did not answer: %s", name, error)
                continue
            for key, seen in told.items():
                self._guarded(self._take_in, asked[key], seen)

    def _take_in(self, row: JobRow, seen: Seen) -> None:
        """Record what an engine says, after what the dead left on this disk: their word wins."""
        job, now = row.record, time.time()
        happened = []
        never_seen = job.gang is GangState.ABSENT and job.stopped_at is None
        if seen.state is GangState.GONE and never_seen and now < (job.submitted_at or now) + SETTLE:
            return
        dead = range(len(job.nodes)) if seen.state is GangState.GONE else seen.lost
        for node in dead:
            if not _is_alive(job.nodes[node]):
                continue
            salvage(self._home, self._records, row, node)
            if seen.state is not GangState.GONE:
                data = {"why": "its agent is dead", **self._last_heard(row, node)}
                happened.append(_event(row, Kind.LOST, node=node, data=data))
        if (seen.state, seen.why) != (job.gang, job.why) and seen.state is not GangState.UNKNOWN:
            happened.append(_event(row, Kind.SEEN, data={"state": seen.state, "why": seen.why}))
        if happened:
            self._records.hear(row.name, happened)
            self._bell.ring(row.name)

    def _look_at(self, row: JobRow) -> None:
        """Take every step there is to take now."""
        while row.record.status not in TERMINAL:
            step = policy.decide(row.record, row.plan.rules, self._clock(row))
            if step is None:
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
        engine = self._engines[row.plan.engine]
        if step.effect == "submit":
            try:
                handle = engine.submit(self._gang(row))
            except Refused as error:
                return _event(row, Kind.REFUSED, data={"message": error.message})
            return _event(row, step.event, data=handle._asdict())
        if step.effect == "stop":
            engine.stop(Handle(_key(row)))
            # Only now is nothing written any more.
            for node in range(len(row.record.nodes)):
                salvage(self._home, self._records, row, node)
            self._next_tick = 0.0  # it is gone by now, most likely: ask at once
            return _event(row, step.event)
        if step.event is Kind.FINISHED:
            return _event(row, step.event, data=finished(row))
        data = step.data
        if step.event is Kind.LOST and step.node is not None:
            data = {**data, **self._last_heard(row, step.node)}
        return _event(row, step.event, node=step.node, data=data)

    def _gang(self, row: JobRow) -> Gang:
        launch = row.record.launch
        env = {
            "ALLRANKS_AGENT_URL": self._url,
            "ALLRANKS_AGENT_TOKEN": self._auth.agent_token(row.name, launch),
            "ALLRANKS_AGENT_LAUNCH": str(launch),
            "ALLRANKS_AGENT_PATIENCE": str(self._clocks.patience),
        }
        return row.plan.gang._replace(key=_key(row), env=env)

    def _clean(self) -> None:
        """After the end of a launch nothing of it stays, at the engine or on this disk. Done at
        the next tick: agents that have just said bye are then gone by themselves."""
        while self._ended:
            row = self._ended.pop()
            self._guarded(self._forget, row)

    def _forget(self, row: JobRow) -> None:
        self._engines[row.plan.engine].stop(Handle(_key(row)))
        shutil.rmtree(self._home.nodes / _key(row), ignore_errors=True)
        for node in range(len(row.record.nodes)):
            self._last.pop(Heard(row.name, row.record.launch, node), None)

    def _forget_the_dead(self) -> None:
        """What a server that was killed had no time to clean up after."""
        live = {_key(row) for row in self._records.live()}
        for folder in self._home.nodes.iterdir():
            if folder.name not in live:
                for engine in self._engines.values():
                    engine.stop(Handle(folder.name))
                shutil.rmtree(folder, ignore_errors=True)

    def _last_heard(self, row: JobRow, node: int) -> dict[str, float]:
        """When the node was last heard of, in the time of events; empty if it never was."""
        last = self._last.get(Heard(row.name, row.record.launch, node))
        return {} if last is None else {"heard": time.time() - (time.monotonic() - last)}

    def _clock(self, row: JobRow) -> policy.Clock:
        now, clocks = time.monotonic(), self._clocks
        silent = frozenset(
            node
            for node in range(len(row.record.nodes))
            if now - self._last.get(Heard(row.name, row.record.launch, node), self._born)
            > clocks.lease
        )
        since = time.time() - (now - self._born)
        return policy.Clock(time.time(), silent, clocks.hello, clocks.grace, since)


def finished(row: JobRow) -> dict[str, Any]:
    """How the job ended, as the FINISHED event records it and ``job show`` prints it."""
    failure = policy.outcome(row.record)
    verdict = VERDICTS[failure.reason]
    code = 0 if failure.reason is Reason.DONE else failure.code
    if verdict.outcome is JobStatus.COMPLETED:
        return {"status": verdict.outcome, "exit_code": code, "error": None}
    error = {
        "reason": failure.reason,
        "blame": verdict.blame,
        "message": _sentence(failure, verdict.sentence),
        "hint": _hint(row, failure, verdict),
        "node": failure.node,
        "rank": failure.rank,
    }
    return {"status": verdict.outcome, "exit_code": code, "error": error}


def _hint(row: JobRow, failure: policy.Failure, verdict: Verdict) -> str:
    """What the lines of the rank itself suggest comes before what follows from its end alone."""
    text = verdict.hint if failure.rank is not None else verdict.hint.replace(" --rank {rank}", "")
    general = text.format(job=row.name, rank=failure.rank)
    if failure.reason is Reason.SETUP_FAILED and failure.hint:
        return failure.hint
    own = failure.hint
    if not own and distributions.together(row.plan.task):
        own = policy.left_early(row.record, failure.at)
    own = own and f"{own}; "
    return own + SIGNALS.get(failure.code or 0, "") + general


def _sentence(failure: policy.Failure, sentence: str) -> str:
    if failure.reason is Reason.NODE_LOST and failure.node is not None:
        return f"node {failure.node} was lost: {failure.message}"
    return failure.message or sentence


def _event(row: JobRow, kind: Kind, *, node: int | None = None, data: Any = None) -> Event:
    record = row.record
    return Event(kind, time.time(), record.launch, record.attempt, node, data=data or {})


def _key(row: JobRow) -> str:
    return f"{row.name}.{row.record.launch}"


def _is_out_there(row: JobRow) -> bool:
    return row.record.status is not JobStatus.NOT_STARTED and row.record.gang is not GangState.GONE


def _is_alive(node: policy.Node) -> bool:
    return not node.left and node.state is not NodeState.LOST
