"""Connections that have stopped being HTTP: two of them are joined, and bytes pass between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from allranks.channel import PROTOCOL, Frame, Lost, frame, keep_alive, take_frames
from allranks.errors import UsageError
from allranks.http_limits.header_limits import CONNECTION

# Bytes that wait for a slow reader before its peer is read no more.
_BUFFER = 1 << 20
# Seconds without a byte after which no frame is on its way.
_RESTED = 1.0
_SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n"
    % PROTOCOL.encode()
)


def require_upgrade(request: Request) -> None:
    """Raise UsageError if the request does not ask for an upgrade to a channel."""
    if request.headers.get("upgrade") != PROTOCOL:
        hint = "let what is between pass the headers `connection` and `upgrade`, as for WebSockets"
        raise UsageError(f"the request asks for no upgrade to {PROTOCOL}", hint=hint)


class Upgraded(Response):
    """A response that takes its connection out of HTTP and gives it to ``joined``."""

    def __init__(self, joined: Callable[[Pipe], None]) -> None:
        super().__init__(status_code=101)
        self._joined = joined

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pipe = Pipe(scope[CONNECTION].take_over())
        pipe.transport.write(_SWITCHING)
        self._joined(pipe)


class Pipe(asyncio.Protocol):
    """One of two joined connections; it is not read before it is joined. ``ended`` is called when
    it has closed. For the server's event loop."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.ended: Callable[[], None] = lambda: None
        # When bytes last came, by the event loop's clock, which is the monotonic one.
        self.used = time.monotonic()
        self._peer: Pipe | None = None
        self._loop = asyncio.get_running_loop()
        keep_alive(transport.get_extra_info("socket"))
        transport.pause_reading()
        transport.set_write_buffer_limits(high=_BUFFER)
        transport.set_protocol(self)

    def join(self, peer: Pipe) -> None:
        self._peer, peer._peer = peer, self
        for pipe in (self, peer):
            if pipe.transport.is_closing():
                pipe._other().close()
            else:
                pipe.transport.resume_reading()

    def note(self, text: str) -> None:
        """Send a note between two frames: what the peer sends has rested for a while, so the last
        one is complete. Not if it has not, or this end reads nothing. Thread-safe."""

        def send() -> None:
            rested = self._peer is not None and time.monotonic() - self._peer.used > _RESTED
            if rested and not self.transport.get_write_buffer_size():
                self.transport.write(frame(Frame.NOTE, text.encode()))

        self._loop.call_soon_threadsafe(send)

    def abort(self) -> None:
        """Close it at once, and its peer. Thread-safe."""
        self._loop.call_soon_threadsafe(self.transport.abort)

    def _other(self) -> Any:
        assert self._peer is not None
        return self._peer.transport

    def take(self, data: bytes) -> None:
        """What the peer has received goes out here."""
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.used = time.monotonic()
        assert self._peer is not None
        self._peer.take(data)

    def pause_writing(self) -> None:
        if self._peer is not None:
            self._other().pause_reading()

    def resume_writing(self) -> None:
        if self._peer is not None:
            self._other().resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._peer is not None:
            self._other().close()  # after what it has not sent yet
        self.ended()


class PlainPipe(Pipe):
    """One whose own connection has the bytes of a port, where its peer's has frames."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self._frames = bytearray()

    def data_received(self, data: bytes) -> None:
        super().data_received(frame(Frame.DATA, data))

    def take(self, data: bytes) -> None:
        self._frames += data
        try:
            for kind, part in take_frames(self._frames):
                if kind is Frame.DATA:
                    self.transport.write(part)
                else:  # the port has sent all, or does not answer
                    self.transport.close()
        except Lost:
            self.transport.abort()
