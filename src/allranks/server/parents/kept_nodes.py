"""Start and end the launches that keep nodes for the children of a parent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from allranks.core.job.sessions import launch
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


def keeps_nodes(parent: JobRow, services: Services) -> bool:
    """Whether the children's compute has a queue, and nodes that any child can run on: on this
    machine a gang starts at once, and in a pod it has the pod's image."""
    kind = services.clusters.kind_of(parent.plan.engine)
    return kind.remote and not kind.images


class KeptNodes:
    """The launches of one live parent. A launch that fails before it runs fails one child that
    waits, as the gang of its own would have: so the child's rules decide how often it is tried."""

    def __init__(self, parent: str, services: Services, submit_as: SubmitAs) -> None:
        self._parent, self._services, self._submit_as = parent, services, submit_as
        # Launches that were seen alive, or have failed before they ran and failed no child yet.
        self._open: set[str] = set()

    def advance(self, like: Plan, nodes: int, children: Iterable[str], to_come: int) -> bool:
        """Do one thing, if any is due. Returns whether it did. ``children`` are the live ones; each
        asks for that many ``nodes`` with what ``like`` asks for. At most ``to_come`` follow."""
        rows = [self._services.records.get(name) for name in children]
        waiting = [
            row
            for row in rows
            if row.record.status in _WAITING
            and not row.record.canceled
            and row.record.gang is not GangState.GONE
        ]
        launches = self._live()
        self._open |= {row.name for row in launches}
        if (failed := self._failed(launches)) is not None:
            return self._fail_one(failed, waiting)
        taken = {row.record.ref for row in rows}
        states = [
            Launch(
                row.name,
                row.record.status is JobStatus.RUNNING,
                row.name in taken,
                row.record.canceled or row.record.status is JobStatus.FINALIZING,
            )
            for row in launches
        ]
        if waiting and any(state.runs and not state.busy for state in states):
            self._services.sessions.poll(())  # a launch has just got its nodes
        step = next_step(states, len(waiting), to_come)
        if step is None:
            return False
        if step.kind == "start":
            self._start(like, nodes)
            return True
        if not self._services.sessions.end_unused(step.name):
            return False  # taken just now
        self._services.loops.wake(step.name)
        return True

    def end(self) -> None:
        """Cancel all of them, as the parent was: with force, if it was given up."""
        given_up = self._services.records.get(self._parent).record.given_up
        data = {"force": True} if given_up else {}
        for row in self._live():
            if not row.record.canceled or row.record.given_up < given_up:
                event = row.event(Kind.CANCEL_ASKED, data=data)
                self._services.records.append(row.name, [event])
                self._services.loops.wake(row.name)

    def _live(self) -> list[JobRow]:
        return [row for row in self._services.records.live() if is_launch_of(row, self._parent)]

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

    def _start(self, like: Plan, nodes: int) -> None:
        services, parent = self._services, self._parent
        number = services.children.launches(parent) + 1

        def submit(name: str) -> None:
            plan = launch(name, like, nodes, AGENT, str(services.home.jobs / name))
            spec = {
                "type": "command",
                "name": name,
                "command": plan.task.command,
                "compute": plan.compute,
                "experiment_name": plan.task.experiment,
                "parent_job_name": parent,
                "resources": {"instance_count": nodes},
                # Its trials are filed under the sweep, and it ends with their need of it.
                "session": {"idle_timeout": None},
            }
            spec = signed(spec, submitter(services.records.get(parent).spec))
            services.records.create(spec, plan, child=Child(parent, -number, {}))
            services.loops.wake(name)

        self._submit_as(f"{parent}_nodes_{number}", -number, submit)
