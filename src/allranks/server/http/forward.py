"""Forward HTTP requests to a Unix socket, streaming both bodies; one request per connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade

from allranks.serve.upstream import HOP, LONGEST_HEAD, Headers, Received

Receive = Callable[[], Any]
Send = Callable[[Any], Any]

_PIECE = 1 << 18
_ADDRESS = {b"host", b"origin", b"referer"}
_PRIVATE = {b"authorization", b"cookie"}
_DROPPED = HOP | _ADDRESS


class Call(NamedTuple):
    """``target`` is the raw path and query; ``size`` is that of the body, None: chunked.
    ``private``: also forward the headers that identify the caller; ``is_own_host``: and those that
    say by which address it came."""

    method: str
    target: str
    headers: Headers
    size: int | None
    private: bool = False
    is_own_host: bool = False


async def forward(path: str, call: Call, body: AsyncIterator[bytes], send: Send) -> None:
    """Make the call at the socket ``path``, and ``send`` the answer as ASGI messages.

    Raises ConnectionError for an incomplete answer; ``send`` may have been called then.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise ConnectionError(str(error)) from error
    sending = asyncio.create_task(_send_request(writer, call, body))
    try:
        await _relay_answer(reader, call.method, send)
    finally:
        sending.cancel()
        # An error of sending has ended the answer as well.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await sending
        writer.close()


class EndedEarly(ConnectionError):
    """The answer has begun: only closing the connection is left."""


async def pass_on(path: str, call: Call, receive: Receive, send: Send) -> None:
    """``forward`` a request with its body, as long as its caller stays: live pages have no end.

    Raises ConnectionError, EndedEarly if ``send`` was called before.
    """
    started = False

    async def relay(message: Any) -> None:
        nonlocal started
        started = True
        await send(message)

    work = asyncio.create_task(forward(path, call, body_of(receive, call.size), relay))
    gone = asyncio.create_task(_disconnected(receive)) if call.size == 0 else None
    try:
        await asyncio.wait({work, *([gone] if gone else [])}, return_when="FIRST_COMPLETED")
        if work.done():
            work.result()
    except ConnectionError as error:
        if started:
            raise EndedEarly(str(error)) from None
        raise
    finally:
        for task in (work, gone):
            if task is not None:
                task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def body_of(receive: Receive, size: int | None = None) -> AsyncIterator[bytes]:
    """The body of a request. Raises ConnectionError if its caller goes."""
    while size != 0:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError("the client disconnected")
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def _send_request(
    writer: asyncio.StreamWriter, call: Call, body: AsyncIterator[bytes]
) -> None:
    try:
        await _write_request(writer, call, body)
    except BaseException:
        # Close the connection, so that no one waits for the answer to half a request.
        writer.transport.abort()
        raise


async def _write_request(
    writer: asyncio.StreamWriter, call: Call, body: AsyncIterator[bytes]
) -> None:
    lines = [f"{call.method} {call.target} HTTP/1.1".encode("latin-1")]
    dropped = _DROPPED if call.private else _DROPPED | _PRIVATE
    dropped = dropped - _ADDRESS if call.is_own_host else dropped
    lines += [b"%s: %s" % header for header in call.headers if header[0].lower() not in dropped]
    size = b"transfer-encoding: chunked" if call.size is None else b"content-length: %d" % call.size
    lines += [] if call.is_own_host else [b"host: localhost"]
    writer.write(b"\r\n".join([*lines, b"connection: close", size, b"", b""]))
    async for piece in body:
        if piece:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if call.size is None else piece)
            await writer.drain()
    if call.size is None:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _relay_answer(reader: asyncio.StreamReader, method: str, send: Send) -> None:
    response = Received()
    started = False
    while not response.complete:
        try:
            data = await reader.read(_PIECE)
            response.pending += len(data)
            if data:
                response.parser.feed_data(data)
        except (OSError, HttpParserError, HttpParserUpgrade) as error:
            raise ConnectionError(f"the answer ended early: {error}") from error
        if response.pending > LONGEST_HEAD:
            raise ConnectionError("the head of the answer is too long")
        if response.has_head and not started:
            started = True
            start = {"status": response.status, "headers": response.headers}
            await send({"type": "http.response.start", **start})
        pieces, response.pieces = b"".join(response.pieces), []
        if pieces:
            await send({"type": "http.response.body", "body": pieces, "more_body": True})
        # An answer to HEAD has a length but no body.
        if not data or (started and method == "HEAD"):
            break
    if not started or not (response.complete or response.until_closed or method == "HEAD"):
        raise ConnectionError("the answer ended early")
    await send({"type": "http.response.body", "body": b"", "more_body": False})
