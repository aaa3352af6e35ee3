"""Whether this node sees the server's home."""

from __future__ import annotations

import os

from allranks.agent.lifecycle import output_disks
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.parts import Part, Run
from allranks.errors import NotFound


class SharedHome(Part):
    """``mark`` is that of the first server, later ones have marks of their own; ``home`` is where
    the server has its files."""

    def __init__(self, mark: str | None, home: str, calls: AgentCalls) -> None:
        self._mark, self._home, self._calls = mark, home, calls

    def begin(self, run: Run) -> None:
        if self._mark is not None and not run.task.sends_files:
            require_home(self._mark, self._calls.where.node)
            self._mark = None
        output_disks.require_outside(run.task, self._home)


def require_home(mark: str, node: int) -> None:
    """Raise NotFound if the server's ``mark`` is not there: another folder lies at the path of its
    home, and what the job writes there would be lost."""
    try:
        os.stat(mark)
    except OSError as error:
        host = os.uname().nodename
        home = os.path.dirname(os.path.dirname(mark))
        why = (error.strerror or str(error)).lower()
        raise NotFound(
            f"node {node} on {host} does not see the server's ALLRANKS_HOME ({why})",
            where=home,
            hint=f"mount the disk with {home} on {host}, or keep the job off that host",
        ) from None
