"""What ends an agent's waiting."""

from __future__ import annotations

from allranks.statuses import Reason


class Leave(Exception):
    """The server wants nothing more of this agent, or has been away for too long."""


class Stopped(Exception):
    """The server wants the attempt to end before it has begun."""

    def __init__(self, why: Reason) -> None:
        super().__init__(why)
        self.why = why
