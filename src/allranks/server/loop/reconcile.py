"""The loop: load a job, decide, do one step outside any transaction, record it.

Each cluster has its own thread, so that a slow cluster delays only its own jobs. A thread sleeps
until a job is woken or, while it has live jobs, until the next tick. On a tick it polls its engine
once for all gangs and advances every live job.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Sequence
from pathlib import Path

from allranks import clock, disk_space, folder_trees
from allranks.agent.lifecycle.unsaved import is_kept
from allranks.core.lifecycle import decide, repeated_time_limits
from allranks.core.lifecycle.decide import Effect, Step
from allranks.core.lifecycle.fold import fold
from allranks.core.plan import Gang
from allranks.engines.base import GangStatus, Handle, NotYet, QueueFull
from allranks.errors import AllranksError, Refused
from allranks.events import LEFTOVERS, Event, Kind
from allranks.server.clusters.clusters import Cluster, KnownComputes
from allranks.server.ending.endings import Ending, Endings, Outcome
from allranks.server.jobs.first_steps import resumed_apart
from allranks.server.loop import progress
from allranks.server.loop.dead_agent_files import collect
from allranks.server.loop.gang_statuses import GangStatuses, handle_of
from allranks.server.loop.loop_services import LoopServices
from allranks.server.loop.retries import Retries
from allranks.server.loop.submissions import Submissions
from allranks.server.loop.subscriptions import Change
from allranks.server.worker import Worker
from allranks.statuses import TERMINAL, GangState
from allranks.store.jobs.job_rows import COMMAND, JobRow

log = logging.getLogger("allranks.loop")


class Loop(Worker):
    """Drives the jobs of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        services: LoopServices,
        endings: Endings,
        leftovers: Sequence[str] = (),
    ) -> None:
        super().__init__(f"loop {cluster.kind}", retry=services.clocks.tick)
        self._cluster, self._clusters = cluster, services.clusters
        self._leftovers = leftovers
        self._endings = endings
        self._engine = services.clusters.engine(cluster)
        self._services = services
        self._home, self._records, self._clocks = services.home, services.records, services.clocks
        self._wakeups, self._heartbeats = services.wakeups, services.heartbeats
        self._hangs, self._states = services.hangs, services.states
        self._retries = Retries(services.clocks.tick)
        self._submissions = Submissions(self._clusters.kind_of(cluster.kind).queue)
        # Whether jobs are looked at in the order of their submission.
        self._in_order = False
        self._statuses = GangStatuses(self._engine, cluster.kind, services)
        self._next_tick = 0.0
        # Names of jobs that are being ended, and what came of it.
        self._ending: set[str] = set()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._to_clean: list[JobRow] = []
        # Versions of jobs that wait in the queue, with which nothing was due.
        self._waiting: dict[str, int] = {}
        # Names of jobs whose gang was stopped: most likely it is gone by now.
        self._stopped: set[str] = set()
        # Gangs that wait or whose ranks have ended since the last look, for an engine with a queue.
        self._to_poll: list[Handle] = []
        self._computes: KnownComputes | None = None

    # ------------------------------------------------------------ the thread

    def look(self, names: set[str]) -> float | None:
        if names:
            self._statuses.hurry()
        self._take_outcomes()
        live = True  # assumed until the next tick
        if names and time.monotonic() < self._next_tick:
            for name in names:
                self._advance_or_log(self._records.get(name))
            self._start_next()
            self._look_at_stopped()
        else:
            live = self._look_at_all()
        return max(0.0, self._next_tick - time.monotonic()) if live or self._to_clean else None

    def _look_at_all(self) -> bool:
        """Whether there are live jobs."""
        self._remove_leftovers()
        self._clean()
        rows = [row for row in self._records.live() if self._is_mine(row)]
        self._next_tick = time.monotonic() + self._clocks.tick
        self._follow_computes(rows)
        self._statuses.poll(rows)
        latest = [self._records.latest(row.name) or row for row in rows]
        self._submissions.count(latest)
        self._in_order = True
        for row in latest:
            row = self._records.latest(row.name) or row
            if self._waiting.get(row.name) != row.version:
                self._advance_or_log(row)
        self._in_order = False
        self._look_at_stopped()
        return bool(rows)

    def finish(self) -> None:
        self._take_outcomes()
        self._clean()

    def _advance_or_log(self, row: JobRow) -> None:
        """An error of one job keeps no other from being handled."""
        try:
            self._advance(row)
        except Exception:
            log.exception("%s: failed; retrying at the next tick", row.name)

    def _is_mine(self, row: JobRow) -> bool:
        return (
            row.type == COMMAND
            and row.plan.engine == self._cluster.kind
            and self._clusters.cluster(row.plan) == self._cluster
        )

    def _look_at_stopped(self) -> None:
        """Poll and advance jobs that were stopped just now, and not hundreds that wait in the
        queue: a burst of short jobs would spend its time on those."""
        names, self._stopped = self._stopped, set()
        self._statuses.poll_now([self._records.get(name) for name in names])
        for name in names:
            self._advance_or_log(self._records.get(name))

    def _start_next(self) -> None:
        """Let the engine start jobs where ranks have just ended or nodes are free: a burst of short
        jobs would wait for a tick after each."""
        changed, self._to_poll = self._to_poll, []
        if changed:
            self._engine.poll(changed)

    def _advance(self, row: JobRow) -> None:
        """Take every step that is due."""
        while row.record.status not in TERMINAL and row.name not in self._ending:
            step = decide.decide(row.record, row.plan.rules, self._clock(row))
            if step is not None and step.event is Kind.RELAUNCHED:
                step = self._relaunch(row, step)
            if step is None:
                if decide.waits(row.record):
                    self._waiting[row.name] = row.version
                return
            if step.effect is Effect.SUBMIT and not self._retries.due(row.key, step.event):
                return
            if step.effect is Effect.SUBMIT and (
                why := self._states.waits(row) or self._submissions.waits(row, self._in_order)
            ):
                self._statuses.record(row, GangStatus(GangState.UNKNOWN, why))
                return
            if step.event is Kind.FINISHED:
                self._end(row, row, [])
                return
            if not self._execute(row, step):
                return
            before, row = row, self._records.get(row.name)
            if row.version == before.version:
                return  # changed concurrently: retried at the next tick

    def _relaunch(self, row: JobRow, step: Step) -> Step | None:
        """The step for a job that is to start again, after a look at what a time-limited attempt
        has left."""
        rules = row.plan.rules
        if rules.no_progress == "ignore" or not decide.ran_out_of_time(row.record):
            return step
        before = progress.before(row, self._records)
        now = progress.now(row, before, self._home, self._states, self._services.points)
        gained = repeated_time_limits.progress(before, now)
        judged = decide.decide(row.record, rules, self._clock(row)._replace(progress=gained))
        if judged is None or judged.event is not Kind.RELAUNCHED:
            return judged
        return judged._replace(data={**judged.data, "left": now.pack()})

    def _execute(self, row: JobRow, step: Step) -> bool:
        """Perform the step's effect, then record it; False if the effect failed and is retried, or
        the job ends with it."""
        try:
            events = [self._perform(row, step)]
            after = row._replace(record=fold(row.record, events[0]))
            if events[0].kind is Kind.SUBMITTED:
                events += self._statuses.first_events(after)  # whether it waits
        except AllranksError as error:
            if isinstance(error, QueueFull):
                self._submissions.refused(row, error)
            elif isinstance(error, NotYet):
                self._retries.postpone(row.key, step.event)
            else:
                self._retries.failed(row.key, step.event, error)
            self._statuses.record(row, GangStatus(GangState.UNKNOWN, error.message))
            return False
        if step.event is Kind.CLOSING:
            # The end of a job whose only agent has left is recorded together with it.
            following = decide.decide(after.record, row.plan.rules, self._clock(row))
            if following is not None and following.event is Kind.FINISHED:
                self._end(row, after, events)
                return False
        saved = self._records.apply(row, events)
        self._wakeups.notify(row.name)
        if saved is not None:
            self._poll_soon(saved)
            if step.event is Kind.RELAUNCHED:
                self._to_clean.append(row)
            if step.event is Kind.GO and row.spec.get("session") is not None:
                self._tell_parent(row)
        return True

    def _poll_soon(self, row: JobRow) -> None:
        """For an engine with a queue, where a gang waits or its ranks have ended."""
        handle = handle_of(row)
        if not self._engine.pace and (row.record.gang is GangState.QUEUED or handle.ended):
            self._to_poll.append(handle)

    def _tell_parent(self, row: JobRow) -> None:
        if row.parent is not None:
            self._services.subscriptions.publish(Change.PARENT, row.parent)

    # ------------------------------------------------------------ the end of a job

    def _end(self, row: JobRow, after: JobRow, events: Sequence[Event]) -> None:
        """Hand over a job. ``events`` are not recorded yet, and the job is ``after`` them."""
        self._poll_soon(after)
        self._ending.add(row.name)
        self._endings.end_job(Ending(row, events, self._tell_outcome))

    def _tell_outcome(self, outcome: Outcome) -> None:
        """In the thread of the endings."""
        if outcome.saved is not None:
            self._wakeups.notify(outcome.row.name)
            self._tell_parent(outcome.row)
        self._outcomes.put(outcome)
        if outcome.error is None:
            self.wake(outcome.row.name)  # else it is tried again at the next tick

    def _take_outcomes(self) -> None:
        while not self._outcomes.empty():
            row, saved, error = self._outcomes.get()
            self._ending.discard(row.name)
            if saved is not None:
                self._to_clean.append(row)
            elif error is not None:
                self._retries.failed(row.key, Kind.FINISHED, error)
                self._statuses.record(row, GangStatus(GangState.UNKNOWN, str(error)))

    def _perform(self, row: JobRow, step: Step) -> Event:
        engine = self._engine
        if step.effect is Effect.SUBMIT:
            try:
                handle = engine.submit(self._gang(row))
            except Refused as error:
                refusal = {"message": error.message, "hint": error.hint}
                return row.event(Kind.REFUSED, data=refusal)
            self._submissions.accepted(row)
            return row.event(step.event, data={"key": handle.key, "ref": handle.ref})
        if step.effect is Effect.STOP:
            left = None
            try:
                left = engine.stop(handle_of(row))
            except AllranksError:
                if not row.record.given_up:
                    raise
            # Only now do the agents no longer write.
            for node in range(len(row.record.nodes)):
                collect(self._home, self._records, self._services.points, row, node)
            self._statuses.hurry()
            self._stopped.add(row.name)
            return row.event(step.event, data=_left_behind(left) if left else {})
        if step.event is Kind.RELAUNCHED:
            disk_space.release_if_full(self._home.root)
            # Before the next launch may begin, and before the folders of this one are removed.
            self._services.working_folders.set_aside(row, completed=False)
        data = step.data
        if step.event is Kind.LOST and step.node is not None:
            data = {**data, **self._heartbeats.last_seen(row, step.node)}
        return row.event(step.event, node=step.node, data=data)

    def _gang(self, row: JobRow) -> Gang:
        options = self._clusters.options_now(row.plan, row.spec)
        env = {**row.plan.gang.env, **self._services.agent_variables(row)}
        return row.plan.gang._replace(key=row.key, env=env, options=options)

    def _follow_computes(self, rows: Sequence[JobRow]) -> None:
        """Hand gangs that wait to the engine anew after a change of a compute."""
        if not any(option.live for option in self._clusters.kind_of(self._cluster.kind).options):
            return
        if self._computes != (computes := self._clusters.known()):
            self._computes = computes
            for row in rows:
                if row.record.gang is GangState.QUEUED and decide.waits(row.record):
                    self._engine.submit(self._gang(row))

    def _clean(self) -> None:
        """Remove ended launches from the engine and from this disk. This happens at the next tick:
        by then agents that have just said bye have ended by themselves."""
        rows, self._to_clean = self._to_clean, []
        for row in rows:
            try:
                self._clean_launch(row)
            except Exception as error:
                self._retries.failed(row.key, "clean-up", error)
                self._to_clean.append(row)

    def _clean_launch(self, row: JobRow) -> None:
        if left := self._engine.stop(handle_of(row)):
            self._records.append(row.name, [row.event(Kind.NOTE, data=_left_behind(left))])
        _remove(self._home.nodes / row.key)
        self._waiting.pop(row.name, None)
        self._statuses.forget(row.key)
        self._retries.forget(row.key)
        self._heartbeats.forget(row)
        self._hangs.forget(row)
        self._states.forget(row)
        self._services.node_files.forget(row)
        latest = self._records.latest(row.name)
        if latest is None or latest.record.status in TERMINAL:
            self._services.working_folders.drop_sent(row.name)

    def _remove_leftovers(self) -> None:
        """Clean up gangs that a killed server left."""
        leftovers, self._leftovers = self._leftovers, ()
        try:
            for key in leftovers:
                self._engine.stop(Handle(key))
                _remove(self._home.nodes / key)
        except Exception:
            log.exception("not all leftover gangs could be cleaned up")

    def _clock(self, row: JobRow) -> decide.Clock:
        clocks, heartbeats = row.plan.rules.clocks(self._clocks), self._heartbeats
        reachable = self._services.agent_variables.reachable(row)
        silent = heartbeats.silent(row) if reachable else frozenset[int]()
        since = heartbeats.started_at()
        last_alive = self._statuses.last_alive(row)
        missed = last_alive is not None and last_alive < since
        hung = self._hangs.check(row)
        if hung is not None and (apart := resumed_apart(self._services.points, row)):
            hung = hung._replace(message=f"{hung.message}; {apart}")
        return decide.Clock(clock.now(), silent, clocks.hello, clocks.grace, since, missed, hung)


def _remove(folder: Path) -> None:
    """Remove the folder of a gang's agents, except files that could not be saved."""
    if not any(is_kept(path) for path in folder.glob("*")):
        folder_trees.remove(folder, ignore_errors=True)


def _left_behind(processes: Sequence[str]) -> dict[str, str]:
    """The data of an event: these could not be ended."""
    return {"about": LEFTOVERS, "message": f"could not end {', '.join(processes)}"}
