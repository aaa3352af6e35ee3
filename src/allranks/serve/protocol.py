"""uvicorn's protocol with a limit on the head of a request, which httptools keeps without one."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Bytes, and what came with the last of them.
_LONGEST = 64 << 10


class Bounded(HttpToolsProtocol):
    """Closes the connection of who sends more: callers need no key to send it."""

    _in_head = True
    _has_ended = False
    _head = 0

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
