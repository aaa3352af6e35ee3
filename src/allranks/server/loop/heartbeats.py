"""When each agent was last heard of.

Kept here and not in the record: a server that was away must not blame agents for its own absence,
so every lease starts afresh with it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import NamedTuple

from allranks import clock
from allranks.store.job_rows import JobRow


class Heartbeat(NamedTuple):
    job: str
    launch: int
    node: int


class Heartbeats:
    """``heard`` and the questions may come from any thread; ``watch`` runs in the server's loop."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        # Another for each server that ever ran: who hears it knows whether that is still the one.
        self.name = secrets.token_hex(4)
        self._last: dict[Heartbeat, float] = {}
        self._born = self._awake = time.monotonic()

    def heard(self, job: str, launch: int, node: int) -> None:
        """The agent of that node is alive."""
        self._last[Heartbeat(job, launch, node)] = time.monotonic()

    def excuse(self, row: JobRow) -> None:
        """Its agents are kept from speaking just now: nobody's silence counts."""
        for node in range(len(row.record.nodes)):
            self.heard(row.name, row.record.launch, node)

    def begin_anew(self) -> None:
        """Nobody could be heard until now."""
        self._born = self._awake = time.monotonic()
        self._last.clear()

    def silent(self, row: JobRow) -> frozenset[int]:
        """The nodes that have not been heard of for longer than a lease."""
        now = time.monotonic()
        if now - self._awake > self._lease / 2:
            return frozenset()  # it is we who slept, and `watch` has not found out yet
        launch = row.record.launch
        return frozenset(
            node
            for node in range(len(row.record.nodes))
            if now - self._last.get(Heartbeat(row.name, launch, node), self._born) > self._lease
        )

    def since(self) -> float:
        """When this server began to listen, in the time of events."""
        return clock.now() - (time.monotonic() - self._born)

    def last(self, row: JobRow, node: int) -> dict[str, float]:
        """When the node was last heard of, in the time of events; empty if it never was."""
        last = self._last.get(Heartbeat(row.name, row.record.launch, node))
        return {} if last is None else {"heard": clock.now() - (time.monotonic() - last)}

    def forget(self, row: JobRow) -> None:
        for node in range(len(row.record.nodes)):
            self._last.pop(Heartbeat(row.name, row.record.launch, node), None)

    async def watch(self) -> None:
        """A server that was stopped for a while (paused, swapped out) heard nobody meanwhile: it
        begins to listen anew, as one that was started."""
        while True:
            await asyncio.sleep(self._lease / 8)
            now = time.monotonic()
            if now - self._awake > self._lease / 2:
                self.begin_anew()
            self._awake = now
