"""uvicorn's protocol with a limit on the head of a request, which httptools keeps without one, and
answers whose head and body are sent at once."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Bytes, and what came with the last of them.
_LONGEST = 64 << 10


class _Joined:
    """A transport that sends at once what is written in one turn of the loop, up to some size."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._pieces = transport, list[bytes]()

    def write(self, data: bytes) -> None:
        if not self._pieces:
            asyncio.get_running_loop().call_soon(self._send)
        self._pieces.append(data)
        if len(data) > _LONGEST:
            self._send()

    def _send(self) -> None:
        if self._pieces:
            self._transport.write(b"".join(self._pieces))
            self._pieces.clear()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Bounded(HttpToolsProtocol):
    """Closes the connection of who sends more: callers need no key to send it."""

    _in_head = True
    _has_ended = False
    _head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Joined(transport))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._has_ended = False
        super().data_received(data)
        if not self._in_head or self._has_ended:
            self._head = 0
            return
        self._head += len(data)
        if self._head > _LONGEST:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = self._has_ended = True
        super().on_message_complete()
