"""HTTP to a server on a socket of this machine: both bodies as they come, one call a connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from httptools import HttpParserError, HttpResponseParser

Headers = Sequence[tuple[bytes, bytes]]
Send = Callable[[Any], Any]

_PIECE = 1 << 18
# Of a connection and not of what is said on it, or to be said anew.
_HOP = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    *(b"transfer-encoding", b"content-length", b"expect", b"host", b"origin", b"authorization"),
    *(b"cookie", b"referer"),
}


class Call(NamedTuple):
    """``target`` is path and query as they are sent; ``size`` None: the body is sent in chunks."""

    method: str
    target: str
    headers: Headers
    size: int | None


async def forward(path: str, call: Call, body: AsyncIterator[bytes], send: Send) -> None:
    """Make the call at the socket ``path``, and ``send`` the answer as ASGI has it.

    Raises ConnectionError when there was no whole answer; ``send`` may have been called then.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise ConnectionError(str(error)) from error
    asking = asyncio.create_task(_ask(writer, call, body))
    try:
        await _answer(reader, call.method, send)
    finally:
        asking.cancel()
        # What went wrong while asking has broken off the answer, too.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asking
        writer.close()


async def _ask(writer: asyncio.StreamWriter, call: Call, body: AsyncIterator[bytes]) -> None:
    try:
        await _say(writer, call, body)
    except BaseException:
        # Half a question is never answered: who waits for that is told by the end of the line.
        writer.transport.abort()
        raise


async def _say(writer: asyncio.StreamWriter, call: Call, body: AsyncIterator[bytes]) -> None:
    lines = [f"{call.method} {call.target} HTTP/1.1".encode("latin-1")]
    lines += [b"%s: %s" % each for each in call.headers if each[0].lower() not in _HOP]
    size = b"transfer-encoding: chunked" if call.size is None else b"content-length: %d" % call.size
    writer.write(b"\r\n".join([*lines, b"host: localhost", b"connection: close", size, b"", b""]))
    async for piece in body:
        if piece:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if call.size is None else piece)
            await writer.drain()
    if call.size is None:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _answer(reader: asyncio.StreamReader, method: str, send: Send) -> None:
    heard = _Heard()
    parser = HttpResponseParser(heard)
    begun = False
    while not heard.over:
        try:
            data = await reader.read(_PIECE)
            if data:
                parser.feed_data(data)
        except (OSError, HttpParserError) as error:
            raise ConnectionError(f"its answer broke off: {error}") from error
        if heard.begun and not begun:
            begun = True
            start = {"status": parser.get_status_code(), "headers": heard.headers}
            await send({"type": "http.response.start", **start})
        pieces, heard.pieces = b"".join(heard.pieces), []
        if pieces:
            await send({"type": "http.response.body", "body": pieces, "more_body": True})
        # To HEAD it tells a length that does not come.
        if not data or (begun and method == "HEAD"):
            break
    if not begun or not (heard.over or heard.to_the_end or method == "HEAD"):
        raise ConnectionError("its answer broke off")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Heard:
    """What the parser calls."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.begun = self.over = False
        self.to_the_end = True  # where it says nothing of its length

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower in (b"content-length", b"transfer-encoding"):
            self.to_the_end = False
        if lower not in (b"connection", b"keep-alive", b"transfer-encoding", b"server", b"date"):
            self.headers.append((lower, value))

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.over = True
