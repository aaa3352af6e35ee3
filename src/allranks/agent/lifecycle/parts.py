"""What an agent does for its ranks, in parts that have one life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks.core.lifecycle.phases import Phase
from allranks.core.plan import Interpreter, Place, Task
from allranks.statuses import Reason

if TYPE_CHECKING:
    import socket

    from allranks.agent.environments.node_container import NodeContainer
    from allranks.agent.launch.warm_ranks import WarmRanks
    from allranks.agent.lifecycle.agent_calls import AgentCalls
    from allranks.agent.supervision.attempt import Attempt


class Work(NamedTuple):
    """A prepared working folder. ``paths`` has a value for each ``inputs.x``, ``outputs.y`` and
    ``name``; ``began`` is the time in seconds since the epoch; for the others see
    `prepare.LaidOut`."""

    folder: Path
    paths: dict[str, str]
    began: float
    laid_out: Mapping[str, tuple[int, int, int]]
    imports: Path | None = None


class Run:
    """One attempt on this node, as the parts prepare it. ``closing`` ends what they hold for it,
    however it ends."""

    # Set by the part that prepares the working folder, and by the agent before parts start.
    work: Work
    attempt: Attempt

    def __init__(self, number: int, task: Task, folder: Path) -> None:
        self.number, self.folder = number, folder
        # With the paths and the environment of this node, as far as they are prepared.
        self.task = task
        self.code: Path | None = None
        # Of the state, and of inputs and outputs in datastores, as commands call them.
        self.paths: dict[str, str] = {}
        self.python: Interpreter | None = None
        self.tensorflow: tuple[int, int] | None = None
        self.container: NodeContainer | None = None
        self.warm: WarmRanks | None = None
        # The reserved ports, and where the others find this node.
        self.held: list[socket.socket] = []
        self.place: Place
        # Whether the server had stopped the attempt before the current part was finished.
        self.was_stopped = False
        # Called with the ranks' logs once they run.
        self.when_begun: list[Callable[[Mapping[int, Path]], None]] = []
        self.closing = ExitStack()

    @property
    def is_done(self) -> bool:
        """Whether its ranks have ended, and all have done their work."""
        attempt = getattr(self, "attempt", None)
        return attempt is not None and attempt.reason is Reason.DONE

    def begun(self, logs: Mapping[int, Path]) -> None:
        for call in self.when_begun:
            call(logs)


class Part:
    """A part of what an agent does. The parts begin in their order, and finish in reverse."""

    # What people see while it begins.
    phase: Phase | None = None

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls

    def begin(self, run: Run) -> None:
        """Prepare for the ranks of an attempt. Raises AllranksError, OSError, Stopped."""

    def start(self, run: Run) -> None:
        """All nodes are prepared: the ranks are about to start."""

    def finish(self, run: Run) -> str:
        """The ranks have ended: save what is left of them. Return why not all is saved, or ''. It
        is called again once a full disk may have space."""
        return ""

    def lost(self, run: Run, why: str) -> None:
        """What ``finish`` returned last will not be saved."""

    def close(self) -> None:
        """The job is over here."""
