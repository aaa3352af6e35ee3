"""The exceptions that interrupt an agent's waits."""

from __future__ import annotations

from allranks.statuses import Reason


class Leave(Exception):
    """The server dismisses this agent, or has been unreachable for too long."""


class Stopped(Exception):
    """The server stops the attempt before its ranks have started."""

    def __init__(self, why: Reason) -> None:
        super().__init__(why)
        self.why = why
