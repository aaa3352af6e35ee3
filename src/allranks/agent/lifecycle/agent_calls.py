"""What the parts of an agent ask of it: the server's orders, waits that end with them, messages."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import disk_space
from allranks.agent.lifecycle.phases import Preparation
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.inbox import Inbox
from allranks.agent.transport.link import Link
from allranks.agent.transport.outbox import Outbox
from allranks.core.plan import Task
from allranks.errors import AllranksError, NotFound, Unauthorized
from allranks.events import Kind
from allranks.settings import Clocks
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.api.agents import Assignment

# Seconds for an answer, and between calls to a server that does not answer.
_TIMEOUT, _AGAIN = 30.0, 0.5


class Leave(Exception):
    """The server dismisses this agent, or has been unreachable for too long."""


class ServerAway(Leave):
    """The server has been unreachable for longer than an agent without work waits for it."""


class Stopped(Exception):
    """The server stops the attempt before its ranks have started."""

    def __init__(self, why: Reason) -> None:
        super().__init__(why)
        self.why = why


class AgentCalls:
    """``attempt`` is the current one. After ``patience`` seconds without a server waits raise
    Leave."""

    def __init__(
        self, where: AgentIdentity, link: Link, outbox: Outbox, inbox: Inbox, clocks: Clocks
    ) -> None:
        self.where, self.link, self.inbox, self.clocks = where, link, inbox, clocks
        self.server = link.server
        self.attempt, self.patience = link.attempt, clocks.patience
        self.preparation = Preparation(partial(self.say, Kind.NOTE))
        # Reports what the current phase does.
        self.doing = self.preparation.doing
        # Notes once, for all ranks and attempts, why ranks start cold.
        note = self.note_about("warm")
        self.cold = cache(lambda why: note(f"ranks start cold: {why}"))
        self._outbox = outbox
        self._waits_for = ""

    # ------------------------------------------------------------ orders

    def order(self) -> Assignment:
        """The current order for this attempt. Raises Leave if the server dismisses the agent."""
        if self.inbox.taken:
            return {"do": "stop", "why": self.inbox.taken}
        order = self.inbox.order
        if order["do"] == "leave":
            raise Leave
        return order if order["attempt"] == self.attempt else {"do": "wait"}

    def wait_for_go(self) -> Assignment:
        """Wait at the gate for the `go` or `stop` of this attempt."""
        while (order := self.order())["do"] not in ("go", "stop"):
            self.wait()
        return order

    def wait_for_next_attempt(self) -> None:
        while True:
            order = self.inbox.order
            if order["do"] == "leave":
                raise Leave
            if order["attempt"] > self.attempt:
                # Any order of it, because a later one may already have replaced `prepare`.
                self.attempt = int(order["attempt"])
                return
            self.wait()

    def wait(self, seconds: float = 1.0, fds: Sequence[int] = ()) -> None:
        """Wait for what needs the server. Raises ServerAway."""
        self.inbox.wait(seconds, fds)
        if self.link.silent_for() > self.patience:
            raise ServerAway

    def or_stop(
        self,
        fd: int | None = None,
        seconds: float | None = None,
        heeds: Callable[[Assignment], bool] = lambda order: True,
        needs_server: bool = True,
    ) -> None:
        """Wait until ``fd`` is readable, for ``seconds`` at most. Raises Stopped if the server
        stops the attempt with an order that ``heeds`` accepts, Leave if it dismisses the agent, and
        ServerAway if what is waited for needs it."""
        wait = self.wait if needs_server else self.inbox.wait
        fds = [] if fd is None else [fd]
        until = math.inf if seconds is None else time.monotonic() + seconds
        while not select.select(fds, [], [], 0.0)[0] and time.monotonic() < until:
            self.heed(heeds)
            wait(min(1.0, max(0.0, until - time.monotonic())), fds)

    def heed(self, heeds: Callable[[Assignment], bool] = lambda order: True) -> None:
        """Raises as ``or_stop``, without waiting."""
        order = self.order()
        if order["do"] == "stop" and heeds(order):
            raise Stopped(Reason(order["why"]))

    def pause(self, seconds: float) -> None:
        """Wait before the ranks have started, or only look at the order. Raises as ``or_stop``."""
        self.heed()
        self.or_stop(None, seconds)

    def download(self, path: str, target: Path) -> None:
        """Download what the server has for this node, before the ranks have started; waits while it
        does not answer. Raises NotFound, Unauthorized, OSError, and as ``or_stop``."""
        while True:
            try:
                with self.server.client(_TIMEOUT) as client, target.open("wb") as file:
                    for piece in client.download(f"/agent/v1/{self.where.node}/{path}"):
                        file.write(piece)
                        self.pause(0.0)
                return
            except (Unauthorized, NotFound):
                raise
            except AllranksError:
                self.pause(_AGAIN)

    # ------------------------------------------------------------ events

    def say(self, kind: Kind, rank: int | None = None, **data: Any) -> None:
        if self._outbox.say(kind, self.attempt, rank=rank, **data):
            self.link.wake()

    def ended(self, reason: Reason, message: str, **data: Any) -> None:
        self.say(Kind.ENDED, None, reason=reason, message=message, **data)

    def note(self, message: str, facts: Mapping[str, Any]) -> None:
        self.say(Kind.NOTE, message=message, **facts)

    def note_about(self, about: str) -> Callable[[str], None]:
        return partial(self.note, facts={"about": about})

    def waits(self, what: str) -> None:
        """Report once what saving waits for; '' for nothing."""
        if what != self._waits_for:
            self._waits_for = what
            self.say(Kind.NOTE, doing=what, message=what or "there is space", about="unsaved")

    def make_space(self, task: Task) -> None:
        """The ranks have ended: give up the space that is kept for the end of jobs."""
        if not task.sends_files:
            disk_space.release_if_full(os.path.dirname(os.path.dirname(task.record)))
