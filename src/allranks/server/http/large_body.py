"""Large bodies of requests, received into buffers of our own.

uvicorn copies each piece of a body five times, and reads nothing while a route works on a piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import ClientDisconnect, Request

from allranks.http_limits.header_limits import CONNECTION, Patient, RequestParser

SIZE = 2 << 20


async def written(
    request: Request, offset: int, write: Callable[[memoryview, int], Awaitable[None]]
) -> None:
    """Call ``write`` with each piece of the body and where it belongs, while the next one arrives;
    at least once. Raises what ``write`` raises, once the whole body is read: who still sends does
    not read the answer."""
    at, failed = offset, list[Exception]()

    async def attempt(piece: memoryview, at: int) -> None:
        try:
            await write(piece, at)
        except Exception as error:
            failed.append(error)

    writing: Awaitable[None] | None = None
    try:
        async for piece in large_body(request):
            if writing is not None:
                await writing
            if not failed:
                writing = asyncio.create_task(attempt(piece, at))
                at += len(piece)
    finally:
        await (writing or attempt(memoryview(b""), at))
    if failed:
        raise failed[0]


async def large_body(request: Request) -> AsyncIterator[memoryview]:
    """The body in pieces of at most `SIZE`. A piece is valid until the one after the next is
    requested, so that one is received while another is written. Raises ClientDisconnect."""
    connection = request.scope.get(CONNECTION)
    size = int(request.headers.get("content-length") or 0)
    if connection is None or not size or not _is_receiving(connection, request):
        async for some in request.stream():
            yield memoryview(some)
        return
    body = _Body(connection, size)
    while piece := await body.receive():
        yield piece


def _is_receiving(connection: Patient, request: Request) -> bool:
    """Whether a part of the request's body is still to come."""
    cycle = connection.cycle
    is_current = cycle.scope["headers"] is request.scope["headers"]
    return is_current and cycle.more_body and not cycle.waiting_for_100_continue


class _Body(asyncio.BufferedProtocol):
    """Takes the place of ``connection`` until a body of ``size`` bytes has arrived."""

    def __init__(self, connection: Patient, size: int) -> None:
        self._connection = connection
        self._buffers = deque((memoryview(bytearray(SIZE)), memoryview(bytearray(SIZE))))
        # What of the current piece has not arrived.
        self._free = self._buffers[0]
        self._changed = asyncio.Event()
        self._is_lost = False
        # It came with the headers.
        self._start = memoryview(bytes(connection.cycle.body))
        connection.cycle.body.clear()
        self._left = size - len(self._start)
        connection.flow.pause_reading()
        connection.transport.set_protocol(self)

    async def receive(self) -> memoryview:
        """The next piece; empty at the end."""
        if self._start:
            start, self._start = self._start, self._start[:0]
            return start
        self._buffers.rotate()
        whole = self._buffers[0][: min(SIZE, self._left)]
        self._free = whole
        while self._free and not self._is_lost:
            self._changed.clear()
            self._connection.flow.resume_reading()
            await self._changed.wait()
        whole = whole[: len(whole) - len(self._free)]
        self._left -= len(whole)
        if self._is_lost and not whole:
            raise ClientDisconnect
        if not self._left:
            self._give_back()
        return whole

    def _give_back(self) -> None:
        """The connection goes on with the next request: its parser has seen only half of this."""
        connection = self._connection
        if connection.transport.get_protocol() is self:
            connection.parser = RequestParser(connection)
            connection.on_message_complete()
            connection.transport.set_protocol(connection)
            connection.flow.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._free

    def buffer_updated(self, nbytes: int) -> None:
        self._free = self._free[nbytes:]
        if not self._free:
            self._connection.flow.pause_reading()
            self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._changed.set()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
