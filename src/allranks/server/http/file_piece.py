"""A large piece of a file as an answer, which the kernel sends where it can."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from allranks.http_limits.header_limits import CONNECTION

# Bytes that are read at once: they stay in the processor's cache.
_READ = 256 << 10


class FilePiece(Response):
    """``size`` bytes of a file from ``offset`` on, for a request with a `CONNECTION`. Closes the
    file and ``turn`` once they are sent. Breaks the connection if the file does not have
    ``seen``, its size and mtime in ns, any more."""

    def __init__(
        self, file: io.FileIO, seen: tuple[int, int], offset: int, size: int, turn: ExitStack
    ) -> None:
        length = {"content-length": str(size)}
        super().__init__(media_type="application/octet-stream", headers=length)
        self._file, self._seen, self._offset, self._size = file, seen, offset, size
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, connection = asyncio.get_running_loop(), scope[CONNECTION]
        offset, size = self._offset, self._size
        connection.transport.set_write_buffer_limits(high=_READ)
        with self._turn, self._file as file:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            sent = 0
            if _can_sendfile(connection.transport):
                with contextlib.suppress(OSError, RuntimeError):  # the node has gone
                    sent = await loop.sendfile(connection.transport, file, offset, size)
                connection.cycle.expected_content_length -= sent
            else:
                async for part in _parts(file.fileno(), offset, size):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    sent += len(part)
            if sent == size and await run_in_threadpool(stamp, file.fileno()) == self._seen:
                await send({"type": "http.response.body", "body": b""})
            else:  # the node asks again, and is told if the file has changed
                connection.transport.abort()
                await asyncio.sleep(0)  # so that uvicorn knows


def stamp(file: int) -> tuple[int, int]:
    """The size and mtime in ns of an open file."""
    status = os.fstat(file)
    return status.st_size, status.st_mtime_ns


def read_ahead(file: int, offset: int, size: int) -> None:
    """Read bytes of a file, so that the kernel has them in memory: sending them waits for no
    disk."""
    buffer = bytearray(_READ)
    for at in range(offset, offset + size, _READ):
        os.preadv(file, [buffer], at)


def _can_sendfile(transport: asyncio.Transport) -> bool:
    """Whether the kernel can send files to it: not over TLS."""
    is_asyncio = isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)
    return is_asyncio and transport.get_extra_info("sslcontext") is None


async def _parts(file: int, offset: int, size: int) -> AsyncIterator[memoryview]:
    """Bytes of a file; less if it is shorter. Others have their turn in between."""
    at, end = offset, offset + size
    while at < end:
        part = memoryview(bytearray(min(_READ, end - at)))
        try:
            got = os.preadv(file, [part], at, os.RWF_NOWAIT)
        except OSError:  # the kernel has it no longer
            got = await run_in_threadpool(os.preadv, file, [part], at)
        if not got:
            return
        yield part[:got]
        at += got
        await asyncio.sleep(0)
