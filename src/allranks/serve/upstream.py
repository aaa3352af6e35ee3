"""Requests to replicas over connections that are kept."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

Headers = Sequence[tuple[bytes, bytes]]

# Bytes: of a short body, and of any that come ahead of who reads them.
_PIECE, _AHEAD = 1 << 16, 1 << 18
# Bytes of an answer's head, or of what follows its body.
LONGEST_HEAD = 1 << 16
# Seconds for the body of a short answer to follow its head.
_SOON = 0.05
# Connections to a replica that are opened at once: see `Pool.take`.
_OPENING = 4
# Seconds: gunicorn closes idle connections after two, and a request must not meet that.
_KEPT = 1.5
# Of a connection, not of what it carries.
HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"http2-settings", b"transfer-encoding", b"content-length", b"expect"),
    )
)
# Of an answer, that the router sets itself.
_OWN = HOP - {b"content-length"} | {b"date", b"server"}


class Unsent(ConnectionError):
    """The replica has seen nothing of the request: another one may answer it."""


class Broken(ConnectionError):
    """The connection ended before the answer did."""


class Response:
    """An answer whose head is complete."""

    def __init__(self, connection: Connection) -> None:
        self.status = connection.received.status
        self.headers = connection.received.headers
        self._connection = connection

    @property
    def is_whole(self) -> bool:
        """Whether all of its body has come."""
        return self._connection.received.complete

    def arrived(self) -> bytes:
        """What of its body has come and was not taken before."""
        return self._connection.taken()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its body as it comes. Raises Broken."""
        while True:
            if piece := self.arrived():
                yield piece
            elif self.is_whole:
                return
            else:
                await self._connection.more()


class Received:
    """The parser of a connection and its callbacks. ``is_over``: more came than one answer;
    ``keeps``: the replica keeps the connection; ``is_short``: its body is, and tells its length."""

    def __init__(self) -> None:
        self.parser = HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Forget the last answer."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.has_head = self.complete = self.is_over = self.keeps = self.is_short = False
        self.until_closed = True
        # ``pending``: bytes since the last of a body, or of the answer's head.
        self.status = self.size = self.pending = 0

    def on_message_begin(self) -> None:
        self.is_over = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self.until_closed = False
        if name == b"content-length":
            self.is_short = int(value) <= _PIECE
        if name not in _OWN:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self.parser.get_status_code()
        self.has_head = self.status >= 200
        if self.has_head:
            self.pending = 0
        else:  # 103 and the like: the answer follows
            self.headers, self.until_closed, self.is_short = [], True, False

    def on_body(self, body: bytes) -> None:
        self.pending = 0
        if not self.complete:
            self.pieces.append(body)
            self.size += len(body)

    def on_message_complete(self) -> None:
        self.complete = self.has_head
        self.keeps = self.parser.should_keep_alive()  # forgotten when this returns


class Connection(asyncio.Protocol):
    """A connection to a replica."""

    def __init__(self) -> None:
        self.received = Received()
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._end: str | None = None
        # What `_wait` waits for, and the one that waits.
        self._is_enough: Callable[[], bool] = bool
        self._waiting: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_full = self._is_head = False
        self._has_sent_all = True
        # When the short body that is waited for is late, or 0. The timer serves several requests.
        self._late_at, self._has_timer = 0.0, False

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.pending += len(data)
        try:
            self.received.parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._ended(str(error))
            return
        if self.received.pending > LONGEST_HEAD:
            self._ended("the head of the answer is too long")
            self.transport.abort()
            return
        if self.received.has_head:  # it may have come before all of the request was sent
            self.resume_writing()
        if self.received.size > _AHEAD and not self._is_full:
            self._is_full = True
            self.transport.pause_reading()
        if self._waiting is not None and self._is_enough():
            self._wake()

    def eof_received(self) -> None:
        if self.received.has_head and self.received.until_closed:
            self.received.complete = True
        self._ended("the replica closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self._ended(str(error))

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _ended(self, reason: str) -> None:
        self._end = self._end or reason
        self._wake()
        self.resume_writing()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # What the router calls.

    async def ask(self, head: bytes, body: AsyncIterator[bytes] | bytes) -> Response:
        """Send a request; returns with the head of the answer, and with its body if that is short
        and follows at once. Raises Unsent and Broken."""
        self.received.begin()
        self._late_at = 0.0  # the request before may have been canceled
        self._is_head = head.startswith(b"HEAD ")
        if isinstance(body, bytes):
            self.transport.write(head + body)
            if self.transport.is_closing():
                raise Unsent("the replica has closed the connection")
        else:
            self.transport.write(head)
            async for piece in body:
                self.transport.write(piece)
                if self._drained is not None:
                    await self._drained
                if self.received.has_head:
                    self._has_sent_all = False
                    break
                if self.transport.is_closing():
                    raise Broken("the replica closed the connection")
        await self._wait(self._has_answer)
        self._late_at = 0.0
        if self._is_head:  # its length is that of another answer
            self.received.complete = self.received.until_closed = self.received.has_head
        is_cut = self.received.is_short and not self.received.complete and self._end is not None
        if is_cut or not self.received.has_head:
            raise Broken(self._end)
        return Response(self)

    def _has_answer(self) -> bool:
        answer = self.received
        if not answer.has_head or answer.complete or self._is_head or not answer.is_short:
            return answer.has_head
        if not self._late_at:  # servers send a body just after its head
            self._late_at = self._loop.time() + _SOON
            if not self._has_timer:
                self._look()
        return False

    def _look(self) -> None:
        """Wait no longer for a body that is late."""
        self._has_timer = self._late_at > self._loop.time()
        if self._has_timer:
            self._loop.call_at(self._late_at, self._look)
        elif self._late_at:
            self._wake()

    async def more(self) -> None:
        """Wait until more of the answer has come. Raises Broken."""
        await self._wait(lambda: self.received.complete or bool(self.received.pieces))
        if not self.received.complete and not self.received.pieces:
            raise Broken(self._end)

    async def _wait(self, is_enough: Callable[[], bool]) -> None:
        """Returns when there is enough, or when no more can come."""
        if is_enough() or self._end is not None:
            return
        self._is_enough, self._waiting = is_enough, self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def taken(self) -> bytes:
        pieces, self.received.pieces, self.received.size = self.received.pieces, [], 0
        if self._is_full:
            self._is_full = False
            self.transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def is_reusable(self) -> bool:
        return (
            self.received.complete
            and self._has_sent_all
            and not self.received.until_closed
            and not self.received.is_over
            and self.received.keeps
            and self._end is None
            and not self.transport.is_closing()
        )

    def close(self) -> None:
        self.transport.abort()


class Pool:
    """Connections to one replica. ``sockets``: the folder that `unix:` addresses are in."""

    def __init__(self, address: str, sockets: Path) -> None:
        self._kind, _, self._place = address.partition(":")
        self._sockets = sockets
        self._idle: deque[Connection] = deque()
        # How many are being opened, and who waits for a connection, or with None to open one.
        self._opening = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()

    def has_socket(self) -> bool:
        """False for a replica that has ended, or whose node has: its socket goes with its line."""
        return self._kind == "tcp" or (self._sockets / self._place).exists()

    async def take(self) -> Connection:
        """An idle connection, or a new one. Few are opened at once, and who waits gets one that
        becomes idle: a connection costs as much as a request, so with one for each request a
        router that is late would become ever later. Raises Unsent."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and time.monotonic() - connection.idle_since < _KEPT:
                return connection
            connection.close()
        if self._opening < _OPENING:
            self._opening += 1
        elif (idle := await self._wait()) is not None:
            return idle
        try:
            return await self._open()
        except OSError as error:
            raise Unsent(str(error)) from error
        finally:
            self._opened()

    async def _wait(self) -> Connection | None:
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has been passed on
                connection = turn.result()
                self._opened() if connection is None else self.give(connection)
            raise

    def _opened(self) -> None:
        if not self._pass_on(None):
            self._opening -= 1

    def _pass_on(self, connection: Connection | None) -> bool:
        """Whether somebody waits for it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        if self._kind == "tcp":
            made = await loop.create_connection(Connection, "127.0.0.1", int(self._place))
            return made[1]
        folder = os.open(self._sockets, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Through /proc, because a socket's path is limited to 107 bytes.
            path = f"/proc/self/fd/{folder}/{self._place}"
            return (await loop.create_unix_connection(Connection, path))[1]
        finally:
            os.close(folder)

    def give(self, connection: Connection) -> None:
        """Take a connection back whose answer has been read, whole or not."""
        if connection.is_reusable:
            if not self._pass_on(connection):
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def head(method: str, target: bytes, headers: Headers, length: int | None) -> bytes:
    """The head of a request whose body has ``length`` bytes; None: without a body."""
    lines = [b"%s %s HTTP/1.1" % (method.encode("latin-1"), target)]
    lines += [b"%s: %s" % header for header in headers if header[0] not in HOP]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join([*lines, b"", b""])
