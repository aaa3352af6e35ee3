"""When each agent last called.

Kept in memory and not in the record: agents must not be blamed for the server's own downtime, so
every lease starts anew with the server.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import NamedTuple

from allranks import clock
from allranks.store.jobs.job_rows import JobRow


class _Agent(NamedTuple):
    job: str
    launch: int
    node: int


class Heartbeats:
    """Thread-safe; ``watch`` runs in the server's event loop.

    Leases have a clock of their own. It is slower than the world's while the event loop is late,
    because then the calls of agents wait to be read: thousands may start at once.
    """

    def __init__(self, lease: float) -> None:
        self._lease, self._period = lease, lease / 8
        # Unique to each server process: agents notice by it that the server was restarted.
        self.name = secrets.token_hex(4)
        # In the time of leases, and in that of this machine.
        self._last_call: dict[_Agent, tuple[float, float]] = {}
        self._started = clock.uptime()
        # The time of leases at the last turn of the event loop, and when that was: one value,
        # because other threads read both.
        self._turn = (0.0, self._started)
        self._all_called = 0.0

    def record(self, job: str, launch: int, node: int) -> None:
        self._last_call[_Agent(job, launch, node)] = (self._time(), clock.uptime())

    def record_all(self, row: JobRow) -> None:
        """Renew the lease of all agents of a job, because they cannot call at the moment."""
        for node in range(len(row.record.nodes)):
            self.record(row.name, row.record.launch, node)

    def reset(self, more: float = 0.0) -> None:
        """Start every lease anew, because no agent could call until now. The first is longer by
        ``more`` seconds."""
        self._started = clock.uptime()
        self._all_called = self._turn[0] + more
        self._turn = (self._turn[0], self._started)
        self._last_call.clear()

    def silent(self, row: JobRow) -> frozenset[int]:
        """The nodes whose agent has not called for longer than a lease."""
        if clock.uptime() - self._turn[1] > self._lease / 2:
            return frozenset()  # this process was paused, and `watch` has not noticed yet
        now, launch, never = self._time(), row.record.launch, (self._all_called, 0.0)
        return frozenset(
            node
            for node in range(len(row.record.nodes))
            if now - self._last_call.get(_Agent(row.name, launch, node), never)[0] > self._lease
        )

    def started_at(self) -> float:
        """When this server began to listen, in the time of events; after a pause, its end."""
        uptime, turned = clock.uptime(), self._turn[1]
        paused = uptime - turned > self._lease / 2  # and `watch` has not noticed yet
        return clock.now() - (0.0 if paused else uptime - self._started)

    def last_seen(self, row: JobRow, node: int) -> dict[str, float]:
        """``{"heard": …}``, when the node's agent last called, in the time of events; empty if
        never."""
        last = self._last_call.get(_Agent(row.name, row.record.launch, node))
        return {} if last is None else {"heard": clock.now() - (clock.uptime() - last[1])}

    def have_called(self, row: JobRow, seconds: float) -> bool:
        """Whether all agents of a job have called within the last ``seconds``."""
        name, launch, since = row.name, row.record.launch, clock.uptime() - seconds
        calls = (self._last_call.get(_Agent(name, launch, n)) for n in range(len(row.record.nodes)))
        return all(call is not None and call[1] > since for call in calls)

    def forget(self, row: JobRow) -> None:
        for node in range(len(row.record.nodes)):
            self._last_call.pop(_Agent(row.name, row.record.launch, node), None)

    async def watch(self) -> None:
        """Let the time of leases pass; reset them whenever this process was paused (SIGSTOP,
        swapping, the machine's sleep). A laptop's network comes back some seconds after it."""
        while True:
            await asyncio.sleep(self._period)
            paused = clock.uptime() - self._turn[1] > self._lease / 2
            self._turn = (self._time(), clock.uptime())
            if paused:
                self.reset(2 * self._lease)

    def _time(self) -> float:
        """The time of leases: of each turn of the event loop, at most two periods count."""
        passed, at = self._turn
        return passed + min(clock.uptime() - at, 2 * self._period)
