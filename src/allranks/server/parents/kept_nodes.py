"""Start and end the launches that keep nodes for the children of a parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from allranks import clock
from allranks.core.job.sessions import ENGINE, PARENT, launch, needs
from allranks.core.parents.kept_nodes import Launch, next_step
from allranks.core.plan import Plan
from allranks.events import Kind
from allranks.server.dependencies import Services
from allranks.server.jobs.view import signed, submitter
from allranks.server.sessions.engine import is_launch_of
from allranks.server.submission.submit import AGENT
from allranks.statuses import GangState, JobStatus, Reason
from allranks.store.jobs.job_rows import Child, JobRow

# Submits the child of a number under the first free name.
SubmitAs = Callable[[str, int, Callable[[str], object]], None]
_WAITING = (JobStatus.NOT_STARTED, JobStatus.QUEUED)


def keeps_nodes(engine: str, services: Services) -> bool:
    """Whether that kind of compute has a queue, and nodes that any child can run on: on this
    machine a gang starts at once, and in a pod it has the pod's image."""
    kind = services.clusters.kind_of(engine)
    return kind.remote and not kind.images and engine != ENGINE


def shared_needs(plans: Mapping[str, Plan], services: Services) -> dict[str, str]:
    """By name what each of these jobs asks its cluster for, if another one of them asks for the
    same, and the nodes of the one can be kept for the other."""
    kept = {name: needs(e) for name, e in plans.items() if keeps_nodes(e.engine, services)}
    count = Counter(kept.values())
    return {name: text for name, text in kept.items() if count[text] > 1}


class KeptNodes:
    """The launches of one live parent. A launch that fails before it runs fails one child that
    waits, as the gang of its own would have: so the child's rules decide how often it is tried."""

    def __init__(self, parent: str, services: Services, submit_as: SubmitAs) -> None:
        self._parent, self._services, self._submit_as = parent, services, submit_as
        # Launches that were seen alive, or have failed before they ran and failed no child yet.
        self._open: set[str] = set()
        # Since when each of those that run has been free, as far as this server has seen.
        self._free: dict[str, float] = {}

    def advance(self, children: Iterable[str], to_come: Mapping[str, int]) -> bool:
        """Do one thing, if any is due. Returns whether it did. ``children`` are the live ones;
        ``to_come`` says how many follow at most, by their ``needs``."""
        rows = [self._services.records.get(name) for name in children]
        waiting = [
            row
            for row in rows
            if PARENT in row.plan.gang.options
            and row.record.status in _WAITING
            and not row.record.canceled
            and row.record.gang is not GangState.GONE
        ]
        launches = self._live()
        self._open |= {row.name for row in launches}
        if (failed := self._failed(launches)) is not None:
            return self._fail_one(failed, waiting)
        taken = {row.record.ref for row in rows}
        states = {row.name: self._state(row, row.name in taken) for row in launches}
        if waiting and any(state.runs and not state.busy for state in states.values()):
            self._services.sessions.poll(())  # a launch has just got its nodes
        for common in dict.fromkeys(needs(row.plan) for row in (*waiting, *launches)):
            kept = [states[row.name] for row in launches if needs(row.plan) == common]
            queue = [row for row in waiting if needs(row.plan) == common]
            step = next_step(kept, len(queue), to_come.get(common, 0))
            if step is not None and step.kind == "start":
                self._start(queue[0].plan)
                return True
            # It may have been taken just now.
            if step is not None and self._services.sessions.end_unused(step.name):
                self._services.loops.wake(step.name)
                return True
        return False

    def end(self) -> None:
        """Cancel all of them, as the parent was: with force, if it was given up."""
        given_up = self._services.records.get(self._parent).record.given_up
        for row in self._live():
            self._services.cancel(row.name, given_up)

    def _live(self) -> list[JobRow]:
        return [row for row in self._services.records.live() if is_launch_of(row, self._parent)]

    def _state(self, row: JobRow, busy: bool) -> Launch:
        runs, idle = row.record.status is JobStatus.RUNNING, False
        if runs and not busy:
            since = self._free.setdefault(row.name, clock.now())
            idle = clock.now() - since >= self._services.clocks.idle
        else:
            self._free.pop(row.name, None)
        ends = row.record.canceled or row.record.status is JobStatus.FINALIZING
        return Launch(row.name, runs, busy, ends, idle)

    def _failed(self, live: Iterable[JobRow]) -> JobRow | None:
        """A launch that has ended without having run, and that nobody here has canceled."""
        for name in sorted(self._open - {row.name for row in live}):
            row = self._services.records.get(name)
            # The cluster may have canceled it: else it would be started again and again.
            if row.record.started_at is None and not row.record.canceled:
                return row
            self._open.discard(name)
        return None

    def _fail_one(self, failed: JobRow, waiting: Sequence[JobRow]) -> bool:
        """No launch starts until a child that waits in the queue has been failed."""
        waiting = [row for row in waiting if needs(row.plan) == needs(failed.plan)]
        row = next((row for row in waiting if row.record.status is JobStatus.QUEUED), None)
        if row is None and waiting:
            return False
        self._open.discard(failed.name)
        if row is not None:
            error = failed.error
            why = error["message"] if error is not None else ""
            reason = error["reason"] if error is not None else Reason.NODE_LOST
            data = {"state": GangState.GONE, "why": f"{failed.name}: {why}", "reason": reason}
            self._services.records.append(row.name, [row.event(Kind.SEEN, data=data)])
            self._services.loops.wake(row.name)
        return True

    def _start(self, like: Plan) -> None:
        services, parent = self._services, self._parent
        number = services.children.launches(parent) + 1

        def submit(name: str) -> None:
            plan = launch(name, like, AGENT, str(services.home.jobs / name))
            spec = {
                "type": "command",
                "name": name,
                "command": plan.task.command,
                "compute": plan.compute,
                "experiment_name": plan.task.experiment,
                "parent_job_name": parent,
                "resources": {"instance_count": plan.gang.nodes},
                # The children are filed under the parent, and it ends with their need of it.
                "session": {"idle_timeout": None},
            }
            spec = signed(spec, submitter(services.records.get(parent).spec))
            services.records.create(spec, plan, child=Child(parent, -number, {}))
            services.loops.wake(name)

        self._submit_as(f"{parent}_nodes_{number}", -number, submit)
