"""Sockets in the home that lead to replicas on other machines, through channels of their agents."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from allranks.api.routes import Role
from allranks.channel import Frame, frame
from allranks.errors import AllranksError
from allranks.server.auth.roles import Person
from allranks.server.http.upgrade import Pipe, PlainPipe
from allranks.server.loop.channels import Channel, Channels, place
from allranks.store.jobs.records import Records

log = logging.getLogger("allranks.endpoints")

# Nobody can have this name, and so enter by its channels.
_ROUTER = Person("(router)", Role.ADMIN)
_ORDER = {"command": [], "service": "", "sftp": False, "terminal": False, "debug": None}
# Seconds between two tries to lead one, and of a new one until the router has asked through it.
_PAUSE, _SETTLED = 0.5, 5.0


class ReplicaTunnels:
    """``sockets`` is the folder that the router looks into. A line ends with its channel, and is
    made anew: a socket that is there leads to a node that has answered."""

    def __init__(self, channels: Channels, records: Records, sockets: Path) -> None:
        self._channels, self._records, self._sockets = channels, records, sockets
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # When each was made, by job.
        self._since: dict[str, float] = {}

    def is_settled(self, job: str) -> bool:
        """Whether what the router says of the replica is true of it, and not of its line: the
        server may have been away. Thread-safe."""
        return time.monotonic() - self._since.get(job, math.inf) > _SETTLED

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def keep(self, ports: Mapping[str, tuple[str, int]]) -> None:
        """Have a line to these replicas and to no other: by job, the socket's name and the port
        there. Thread-safe."""
        if self._loop is not None and (ports or self._tasks):
            self._loop.call_soon_threadsafe(self._keep, dict(ports))

    def _keep(self, ports: Mapping[str, tuple[str, int]]) -> None:
        for job in self._tasks.keys() - ports.keys():
            self._tasks.pop(job).cancel()
        for job in ports.keys() - self._tasks.keys():
            self._tasks[job] = asyncio.create_task(self._lead(job, *ports[job]))

    async def _lead(self, job: str, name: str, port: int) -> None:
        """Until cancelled."""
        while True:
            try:
                row = await asyncio.to_thread(self._records.with_ranks, job)
                order = {**_ORDER, "port": port}
                channel = self._channels.open(row, place(row, 0, None), _ROUTER, order)
                await self._serve(channel, name)
            except (AllranksError, OSError) as error:
                log.info("%s cannot be reached yet: %s", job, error)
            except Exception:
                log.exception("%s cannot be reached: trying again", job)
            await asyncio.sleep(_PAUSE)

    async def _serve(self, channel: Channel, name: str) -> None:
        """Lead connections until the node leaves. Raises AllranksError, OSError."""
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        reader, control = await asyncio.open_connection(sock=near)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=far)
        listener: asyncio.Server | None = None
        count = 0

        def accepted(connection: Any) -> None:
            nonlocal count
            count += 1
            control.write(frame(Frame.OPEN, b"%d" % count))
            lead = loop.create_task(self._join(channel, count, PlainPipe(connection)))
            leads.add(lead)
            lead.add_done_callback(leads.discard)

        leads: set[asyncio.Task[None]] = set()
        try:
            await self._channels.join(channel, 0, Pipe(transport))
            # Not `create_unix_server`: that one looks for the socket's name, which is gone.
            made = _bound(self._sockets, name)
            listener = await loop.create_server(lambda: _Accepts(accepted), sock=made)
            self._since[channel.job] = time.monotonic()
            while await reader.read(1 << 16):  # what a hostile node sends is not kept
                pass
        finally:
            self._since.pop(channel.job, None)
            if listener is not None:
                listener.close()
                (self._sockets / name).unlink(missing_ok=True)
            # Of a lost node nothing comes any more: who waits for its answer is to know.
            for pipe in [*channel.pipes]:
                pipe.abort()
            for lead in leads:
                lead.cancel()
            control.close()
            transport.abort()

    async def _join(self, channel: Channel, index: int, pipe: Pipe) -> None:
        try:
            await self._channels.join(channel, index, pipe)
        except (AllranksError, asyncio.CancelledError):
            pipe.transport.abort()


def _bound(folder: Path, name: str) -> socket.socket:
    """A socket of that name. Raises OSError."""
    (folder / name).unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Through /proc, because a socket's path is limited to 107 bytes.
        made.bind(f"/proc/self/fd/{at}/{name}")
    except OSError:
        made.close()
        raise
    finally:
        os.close(at)
    return made


class _Accepts(asyncio.Protocol):
    def __init__(self, accepted: Callable[[Any], None]) -> None:
        self._accepted = accepted

    def connection_made(self, transport: Any) -> None:
        self._accepted(transport)
