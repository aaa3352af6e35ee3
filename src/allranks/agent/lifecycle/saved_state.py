"""The state folder: there before the ranks start, and saved when they have ended."""

from __future__ import annotations

from allranks.agent.lifecycle import unsaved
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.state.state_folder import State, state_folder
from allranks.core.distributions import topology
from allranks.core.lifecycle.phases import Phase
from allranks.core.plan import Task


class SavedState(Part):
    """``at_server``: it has files of the folder."""

    phase = Phase.STATE

    def __init__(self, task: Task, calls: AgentCalls, at_server: bool) -> None:
        self._task, self._calls = task, calls
        # Why the last changes of a failed attempt are not saved.
        self._unsaved = ""
        self._state = State(
            state_folder(calls.where),
            calls.where,
            calls.server,
            alone=task.nodes == 1,
            pace=calls.clocks.look,
            known=at_server,
            note=calls.note_about("state"),
            warn=calls.note_about("checkpoint"),
        )

    def begin(self, run: Run) -> None:
        run.paths |= self._state.paths
        # All nodes see the same files.
        sizes = {run.task.nodes, topology.world(run.task)} if self._calls.where.node == 0 else set()
        self._state.begin(run.number, self._calls.pause, self._calls.doing, sizes)

    def start(self, run: Run) -> None:
        self._state.start(run.attempt.deaths)

    def finish(self, run: Run) -> str:
        self._unsaved, calls = "", self._calls
        return self._state.finish(run.is_done, calls.clocks.grace, calls.order, calls.wait)

    def lost(self, run: Run, why: str) -> None:
        """A successful attempt that cannot save its state has failed."""
        self._unsaved = f"not all of the state folder is saved: {why}"
        if run.is_done:
            unsaved.fail(run, self._calls, f"{self._unsaved}{self._keep()}")
            self._unsaved = ""

    def close(self) -> None:
        if self._unsaved:  # the last changes of a state of a job that has failed
            self._calls.note(f"{self._unsaved}{self._keep()}", {"about": "unsaved"})

    def _keep(self) -> str:
        return unsaved.keep(self._state.root, self._task, self._calls.where)
