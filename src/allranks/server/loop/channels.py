"""Channels into running jobs: a client's connection meets that of a helper of the node's agent.

Opening a channel puts a request beside the orders of its node, as for stacks, until its agent has
called. Nothing is kept of it but an event in the record of the job.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from starlette.requests import Request

from allranks.core.distributions.topology import Rank, ranks, ranks_of, world
from allranks.core.lifecycle.decide import failure, held_until
from allranks.errors import Conflict, Forbidden, NotFound
from allranks.events import Event, Kind
from allranks.http_limits.connection_limit import most_per_address
from allranks.server.auth.roles import Person
from allranks.server.http.upgrade import Pipe, Upgraded, require_upgrade
from allranks.server.loop.mailbox import ADDRESS
from allranks.server.loop.wakeups import Wakeups
from allranks.statuses import TERMINAL, NodeState
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.agents import ChannelOrder

# Seconds for both ends to call.
PATIENCE = 15.0
# The most channels of a job and connections of a channel.
MOST, MOST_CONNECTIONS = 64, 256
# The most characters of a command in the record.
_BRIEF = 1000
_ALIVE = (NodeState.SETUP, NodeState.READY, NodeState.RUNNING)

Side = Literal["client", "agent"]


class Place(NamedTuple):
    """The node that a channel leads to, and the rank that it enters, if the node has any."""

    node: int
    rank: int | None


def place(row: JobRow, rank: int | None, node: int | None) -> Place:
    """Where a channel leads: rank 0 by default; a node's is its first rank. Raises NotFound, and
    Conflict if nobody can get in there now."""
    job, task, name = row.record, row.plan.task, row.name
    if node is not None and node >= len(job.nodes):
        hint = f"use a node from 0 to {len(job.nodes) - 1}"
        raise NotFound(f"{name} has no node {node}", hint=hint)
    if node is None:
        target = next((one for one in ranks(task) if one.rank == (rank or 0)), None)
    else:
        target = next(iter(ranks_of(task, node)), Rank(-1, node, 0))
    if target is None:
        hint = f"use a rank from 0 to {world(task) - 1}"
        raise NotFound(f"{name} has no rank {rank}", hint=hint)
    show = f"see `allranks job show {name}`"
    if job.status in TERMINAL:
        hint = f"its files: allranks job files {name}; to run it again: allranks job restart {name}"
        raise Conflict(f"{name} has ended, and nobody can enter it", hint=hint)
    if row.plan.server_address == ADDRESS:
        hint = "give its compute an address that its nodes reach: --server-address ADDRESS"
        raise Conflict(f"the nodes of {name} reach this server only through files", hint=hint)
    if job.nodes[target.node].state not in _ALIVE:
        state = f"node {target.node} of {name} is not there now: the job is {job.status}"
        raise Conflict(state, hint=f"wait until it prepares or runs; {show}")
    return Place(target.node, target.rank if target.rank >= 0 else None)


def held_rank(row: JobRow) -> int | None:
    """The rank whose failure the job is held after. Raises Conflict if it is not held."""
    if held_until(row.record) is None:
        hint = (
            f"`allranks run --on-failure hold` keeps a failed job; see allranks job show {row.name}"
        )
        raise Conflict(f"{row.name} is not held: it is {row.record.status}", hint=hint)
    failed = failure(row.record)
    return None if failed is None else failed.rank


def require_held(row: JobRow, where: Place) -> None:
    """Raise Conflict if that rank is no failed one of a held job."""
    first = held_rank(row)
    if not row.record.nodes[where.node].held:
        hint = f"where it was: allranks job stacks {row.name}"
        raise Conflict(f"rank {where.rank} has not failed; rank {first} did", hint=hint)


def entered(row: JobRow, where: Place, who: Person, what: str) -> Event:
    """The event of an entry, for the record."""
    data = {"by": who.name, "message": what if len(what) <= _BRIEF else f"{what[:_BRIEF]} …"}
    return row.event(Kind.ENTERED, node=where.node, rank=where.rank, data=data)


class Channel:
    """One channel. Its connection 0 is the control; a port has one more for each connection."""

    def __init__(
        self,
        number: int,
        row: JobRow,
        node: int,
        who: Person,
        order: ChannelOrder,
        entry: Event | None,
    ) -> None:
        self.number, self.job, self.launch, self.node = number, row.name, row.record.launch, node
        self.attempt, self.who, self.order = row.record.attempt, who.name, order
        self.expires_at = who.expires_at
        self.expiry: asyncio.TimerHandle | None = None
        # The event that records who enters, once somebody does.
        self.entry = entry
        self.until = time.monotonic() + PATIENCE
        self.is_over = False
        self.meetings: dict[int, Meeting] = {}
        self.pipes: set[Pipe] = set()
        # The client's end of the control.
        self.client: Pipe | None = None

    @property
    def is_pending(self) -> bool:
        """Whether its agent has not called yet."""
        return time.monotonic() < self.until and not self._has("agent") and not self.is_over

    @property
    def is_dead(self) -> bool:
        return self.is_over or (time.monotonic() > self.until and not self.meetings)

    def end(self) -> None:
        """Cut its connections. Thread-safe."""
        self.is_over = True
        for pipe in [*self.pipes]:
            pipe.abort()

    def _has(self, side: Side) -> bool:
        return 0 in self.meetings and side in self.meetings[0].sides


class Meeting:
    """Where the two ends of a connection meet. For the server's event loop."""

    def __init__(self) -> None:
        self.sides: set[Side] = set()
        self.both = asyncio.Event()
        # The addresses that connections of ports have come from.
        self.hosts: list[str] = []
        self._first: Pipe | None = None

    def join(self, pipe: Pipe) -> None:
        if self._first is None:
            self._first = pipe
        else:
            self._first.join(pipe)


class Channels:
    """The open channels of live jobs. Thread-safe but for `connect`."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._by_job: dict[str, dict[int, Channel]] = {}
        self._last = 0
        self._lock = threading.Lock()

    def open(
        self,
        row: JobRow,
        where: Place,
        who: Person,
        what: Mapping[str, Any],
        entry: Event | None = None,
    ) -> Channel:
        """Ask the node's agent for a channel. Raises Conflict if the job has too many."""
        with self._lock:
            channels = self._by_job.setdefault(row.name, {})
            for old in [channel for channel in channels.values() if channel.is_dead]:
                del channels[old.number]
            if len(channels) >= MOST:
                raise Conflict(f"{row.name} has {MOST} open channels", hint="close some of them")
            self._last = number = max(int(time.time() * 1000), self._last + 1)
            order: ChannelOrder = {"number": number, "rank": where.rank, **what}  # type: ignore[typeddict-item]
            channels[number] = made = Channel(number, row, where.node, who, order, entry)
        self._wakeups.notify(row.name)
        return made

    def pending(self, row: JobRow, node: int, after: int) -> list[ChannelOrder]:
        """The requests that the node's agent does not know yet: those after that number."""
        if row.name not in self._by_job:
            return []
        with self._lock:
            channels = [*self._by_job.get(row.name, {}).values()]
        return [
            channel.order
            for channel in channels
            if channel.number > after
            and (channel.node, channel.launch, channel.attempt)
            == (node, row.record.launch, row.record.attempt)
            and channel.is_pending
        ]

    def find(self, job: str, number: int) -> Channel:
        """Raises NotFound."""
        channel = self._by_job.get(job, {}).get(number)
        if channel is None or channel.is_dead:
            raise NotFound(f"{job} has no open channel {number}", hint="open another one")
        return channel

    def find_own(self, job: str, number: int, who: Person) -> Channel:
        """Raises NotFound, and Forbidden if somebody else has opened it."""
        channel = self.find(job, number)
        if channel.who != who.name:
            raise Forbidden(f"channel {number} is {channel.who}'s", hint="open one of your own")
        return channel

    async def connect(self, request: Request, channel: Channel, index: int, side: Side) -> Upgraded:
        """Join the request's connection to that of the other end. Raises UsageError, Conflict."""
        require_upgrade(request)
        host = request.client.host if request.client and index else ""
        if host and self._count(host) >= most_per_address() // 2:
            # Commands and agents at that address must still reach the server.
            message = f"too many connections to ports of jobs come from {host}"
            raise Conflict(message, hint="close some of them")
        meeting = await self._meet(channel, index, side, host)
        return Upgraded(lambda pipe: self._joined(channel, index, side, meeting, pipe))

    async def join(self, channel: Channel, index: int, pipe: Pipe) -> None:
        """Make a connection of this process the client's end. Raises Conflict."""
        try:
            meeting = await self._meet(channel, index, "client")
        except BaseException:
            self._ended(channel, index)
            raise
        self._joined(channel, index, "client", meeting, pipe)

    def _count(self, host: str) -> int:
        """How many connections of ports come from that address."""
        with self._lock:
            channels = [one for of_job in self._by_job.values() for one in of_job.values()]
        meetings = (meeting for channel in channels for meeting in channel.meetings.values())
        return sum(meeting.hosts.count(host) for meeting in meetings)

    async def _meet(self, channel: Channel, index: int, side: Side, host: str = "") -> Meeting:
        """Wait for the other end. Raises Conflict if it does not come, or this one came before."""
        if len(channel.meetings) >= MOST_CONNECTIONS and index not in channel.meetings:
            hint = "close some, or forward the port once more"
            raise Conflict(f"a port has at most {MOST_CONNECTIONS} connections at once", hint=hint)
        meeting = channel.meetings.setdefault(index, Meeting())
        if side in meeting.sides:
            raise Conflict("this end of the channel is connected already", hint="open another one")
        meeting.sides.add(side)
        meeting.hosts.append(host)
        if len(meeting.sides) == 2:
            meeting.both.set()
        try:
            await asyncio.wait_for(meeting.both.wait(), PATIENCE)
        except TimeoutError:
            self._ended(channel, index)
            missing = f"node {channel.node} of {channel.job}" if side == "client" else "the client"
            hint = f"it may be busy or cut off: allranks job show {channel.job}"
            raise Conflict(f"{missing} did not answer in {PATIENCE:g} s", hint=hint) from None
        return meeting

    def last_used(self, job: str) -> float | None:
        """When bytes last passed through a channel of the job, by the monotonic clock: now, while a
        program or a transfer of files runs there; None if none is open. Thread-safe."""
        channels = self._open(job)
        if any(channel.order["command"] or channel.order["sftp"] for channel in channels):
            return time.monotonic()
        return max((pipe.used for one in channels for pipe in [*one.pipes]), default=None)

    def tell(self, job: str, text: str) -> None:
        """Show a sentence in the terminals that are open in the job. Thread-safe."""
        for channel in self._open(job):
            if channel.order["terminal"] and channel.client is not None:
                channel.client.note(text)

    def _open(self, job: str) -> list[Channel]:
        with self._lock:
            channels = [*self._by_job.get(job, {}).values()]
        return [channel for channel in channels if channel.pipes]

    def end_of(self, name: str) -> None:
        """End the channels of a person whose token was revoked. Thread-safe."""
        with self._lock:
            channels = [one for of_job in self._by_job.values() for one in of_job.values()]
        for channel in channels:
            if channel.who == name:
                channel.end()

    def _joined(
        self, channel: Channel, index: int, side: Side, meeting: Meeting, pipe: Pipe
    ) -> None:
        channel.pipes.add(pipe)
        if side == "client" and index == 0:
            channel.client = pipe
            if channel.expires_at is not None:
                left = channel.expires_at - time.time()
                channel.expiry = asyncio.get_running_loop().call_later(left, channel.end)
        pipe.ended = lambda: self._left(channel, index, pipe)
        meeting.join(pipe)
        if channel.is_over:
            pipe.abort()
        if pipe.transport.is_closing():  # it may have been closed before anything could be called
            pipe.ended()

    def _left(self, channel: Channel, index: int, pipe: Pipe) -> None:
        channel.pipes.discard(pipe)
        self._ended(channel, index)

    def _ended(self, channel: Channel, index: int) -> None:
        channel.meetings.pop(index, None)
        if index == 0:
            channel.is_over = True
            if channel.expiry is not None:
                channel.expiry.cancel()
            with self._lock:
                channels = self._by_job.get(channel.job, {})
                channels.pop(channel.number, None)
                if not channels:
                    self._by_job.pop(channel.job, None)
