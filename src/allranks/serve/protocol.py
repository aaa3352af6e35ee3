"""uvicorn's protocol with limits on the head of a request, and answers whose head and body are sent
at once."""

from __future__ import annotations

import asyncio
from typing import Any

from allranks.http_limits.header_limits import Patient

# Bytes of a piece that are not joined with what follows.
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


class Bounded(Patient):
    """Limits the time and size of a head as the server does: callers need no key to send one."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Joined(transport))
