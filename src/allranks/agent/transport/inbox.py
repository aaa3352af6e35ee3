"""Wake the agent's main thread for orders of the server, signals and ends of ranks.

One `poll` waits for all of them at once.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable
from typing import TYPE_CHECKING

from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.api.agents import Order


class Inbox:
    """The latest order of the server, and in ``taken`` why the engine takes the node away, if it
    does. Both are state, not a queue: reading does not consume them."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.order: Order = {"do": "wait", "attempt": 0, "id": "", "server": "", "heard": 0}
        self.taken: Reason | None = None

    def put(self, order: Order) -> None:
        self.order = order
        self.wake()

    def take(self, why: Reason) -> None:
        """Record that the engine takes the node away. Called from signal handlers."""
        self.taken = self.taken or why
        self.wake()

    def wait(self, timeout: float, fds: Iterable[int] = ()) -> None:
        """Return when there is news since the last call, when one of ``fds`` is readable, or after
        ``timeout`` seconds."""
        poll = select.poll()
        for fd in (self._read, *fds):
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, timeout) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def wake(self) -> None:
        """Make ``wait`` return."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")
