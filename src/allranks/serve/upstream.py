"""Requests to replicas over connections that are kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from httptools import HttpParserError, HttpResponseParser

Headers = Sequence[tuple[bytes, bytes]]

_PIECE = 1 << 16
# Seconds for the body of a short answer to follow its head.
_SOON = 0.05
# Seconds: servers close idle connections after five or more, and a request must not meet that.
_KEPT = 4.0
# Of a connection, not of what it carries.
_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"transfer-encoding", b"content-length", b"expect"),
    )
)


class Unsent(ConnectionError):
    """The replica has seen nothing of the request: another one may answer it."""


class Broken(ConnectionError):
    """The connection ended before the answer did."""


class Response:
    """An answer whose head is complete. ``pieces`` yields its body."""

    def __init__(self, connection: Connection) -> None:
        self.status = connection.found.status
        self.headers = connection.found.headers
        self._connection = connection

    @property
    def is_whole(self) -> bool:
        """Whether all of its body has come."""
        return self._connection.found.complete

    async def settle(self) -> None:
        """Wait a moment for the rest of a short body: servers send it just after the head."""
        length = dict(self.headers).get(b"content-length", b"")
        if self.is_whole or not length.isdigit() or int(length) > _PIECE:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SOON):
                while not self.is_whole:
                    await self._connection.feed()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Raises Broken."""
        connection = self._connection
        while True:
            several, connection.found.pieces = connection.found.pieces, []
            for piece in several:
                yield piece
            if connection.found.complete:
                return
            await connection.feed()


class _Found:
    """The parser of a connection and its callbacks. ``is_over``: more came than one answer;
    ``keeps``: the replica keeps the connection."""

    def __init__(self) -> None:
        self.parser = HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Forget the last answer."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.has_head = self.complete = self.is_over = self.keeps = False
        self.until_closed = True
        self.status = 0

    def on_message_begin(self) -> None:
        self.is_over = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self.until_closed = False
        if name not in _HOP or name == b"content-length":
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self.parser.get_status_code()
        self.has_head = self.status >= 200
        if not self.has_head:  # 103 and the like: the answer follows
            self.headers, self.until_closed = [], True

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.complete = self.has_head
        self.keeps = self.parser.should_keep_alive()  # forgotten when this returns


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.idle_since = 0.0
        self.found = _Found()

    async def ask(self, head: bytes, body: AsyncIterator[bytes] | bytes) -> Response:
        """Send a request; returns with the head of the answer. Raises Broken."""
        self.found.begin()
        if isinstance(body, bytes):
            self.writer.write(head + body)
            if self.writer.is_closing():
                raise Unsent("the replica has closed the connection")
        else:
            self.writer.write(head)
            try:
                async for piece in body:
                    self.writer.write(piece)
                    await self.writer.drain()
            except OSError as error:
                raise Broken(str(error)) from error
        while not self.found.has_head:
            await self.feed()
        if head.startswith(b"HEAD "):  # its length is that of another answer
            self.found.complete = self.found.until_closed = True
        return Response(self)

    async def feed(self) -> None:
        try:
            data = await self.reader.read(_PIECE)
            if data:
                self.found.parser.feed_data(data)
                return
        except (OSError, HttpParserError) as error:
            raise Broken(str(error)) from error
        if not (self.found.has_head and self.found.until_closed):
            raise Broken("the replica closed the connection")
        self.found.complete = True

    @property
    def is_reusable(self) -> bool:
        return (
            self.found.complete
            and not self.found.until_closed
            and not self.found.is_over
            and self.found.keeps
            and not self.reader.at_eof()
        )

    def close(self) -> None:
        self.writer.transport.abort()


class Pool:
    """Connections to one replica. ``sockets``: the folder that `unix:` addresses are in."""

    def __init__(self, address: str, sockets: Path) -> None:
        self._kind, _, self._place = address.partition(":")
        self._sockets = sockets
        self._idle: deque[Connection] = deque()

    async def take(self) -> Connection:
        """Raises Unsent."""
        while self._idle:
            connection = self._idle.pop()
            is_old = time.monotonic() - connection.idle_since > _KEPT
            if not is_old and not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.close()
        try:
            return Connection(*await self._open())
        except OSError as error:
            raise Unsent(str(error)) from error

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._kind == "tcp":
            return await asyncio.open_connection("127.0.0.1", int(self._place), limit=1 << 18)
        folder = os.open(self._sockets, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Through /proc, because a socket's path is limited to 107 bytes.
            path = f"/proc/self/fd/{folder}/{self._place}"
            return await asyncio.open_unix_connection(path, limit=1 << 18)
        finally:
            os.close(folder)

    def give(self, connection: Connection) -> None:
        """Take a connection back whose answer has been read, whole or not."""
        if connection.is_reusable:
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
    lines += [b"%s: %s" % header for header in headers if header[0] not in _HOP]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join([*lines, b"", b""])
