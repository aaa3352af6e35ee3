"""A node that does not share the disk of the server's home: its own folders for the job's files,
which it sends to the server."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import NamedTuple

from allranks.agent.lifecycle.attempt import Attempt
from allranks.agent.state.state_folder import State, job_files
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.plan.data.state_manifest import own
from allranks.plan.plan import Task
from allranks.statuses import Reason


def on_node(task: Task, where: AgentIdentity) -> Task:
    """The task with this node's paths instead of those of the server's home."""
    if not task.sends_files:
        return task
    beneath, record = f"{task.record}/", str(job_files(where).root / own(where.node))
    outputs = tuple(
        each._replace(path=posixpath.join(record, each.path.removeprefix(beneath)))
        if each.path.startswith(beneath)
        else each
        for each in task.outputs
    )
    return task._replace(
        record=record,
        outputs=outputs,
        environments=task.environments or f"{where.cache}/environments",
        cache=task.cache or f"{where.cache}/data",
    )


class AgentCalls(NamedTuple):
    """What ends sending early, see ``State.finish``; and what records a message with its facts."""

    grace: float
    order: Callable[[], Mapping[str, object]]
    wait: Callable[[float], None]
    note: Callable[[str, Mapping[str, str]], None]


class JobFiles:
    """Sends the job's files that this node writes, if it has to. ``known``: whether the server has
    some of an earlier launch."""

    def __init__(
        self,
        task: Task,
        where: AgentIdentity,
        door: ServerAddress,
        pace: float,
        known: bool,
        calls: AgentCalls,
    ) -> None:
        self._state: State | None = None
        self._calls = calls
        if task.sends_files:
            self._state = State(job_files(where), where, door, True, pace, known, self._note)

    def begin(
        self, attempt: int, wait: Callable[[float], None], doing: Callable[[str], None]
    ) -> None:
        """Fetch what this node of the job wrote in earlier launches. Raises AllranksError, OSError,
        and what ``wait`` raises."""
        if self._state is not None:
            self._state.begin(attempt, wait, doing)

    def start(self) -> None:
        """Start to send what is complete."""
        if self._state is not None:
            self._state.start()

    def finish(self, attempt: Attempt | None = None) -> None:
        """Send the rest. A successful ``attempt`` whose files cannot be sent has failed."""
        if self._state is None:
            return
        done = attempt is not None and attempt.reason is Reason.DONE
        why = self._state.finish(done, *self._calls[:3])
        if attempt is not None and done and why:
            stopped = self._calls.order()
            if stopped["do"] == "stop" and stopped["why"] != Reason.DONE:
                attempt.overrule(Reason(str(stopped["why"])))
            else:
                hint = "check the disk of the server's home and its log, and run the job again"
                message = f"not all files of the job reached the server: {why}"
                attempt.overrule(Reason.OUTPUTS_LOST, message, hint)

    def _note(self, message: str) -> None:
        self._calls.note(message, {"about": "files"})
