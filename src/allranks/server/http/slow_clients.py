"""HTTP connections of people or programs that nobody knows yet: what they may send, and how long.

uvicorn bounds a request's head for h11 only, and is served here by httptools, which is faster and
keeps whatever comes. Up to a token that fits, a connection costs no more than is said here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from allranks.errors import TooLarge

# Seconds in which the head of a request has to come, from the connection's or its own beginning on.
HEAD = 20.0
# The most bytes of a request's head, of its first line, and headers in it.
HEAD_BYTES = 64 << 10
URL_BYTES = 16 << 10
HEADERS = 128
# Requests that wait on a connection for the answer to an earlier one.
PIPELINED = 8
# Bytes of a body that are let pass, and not kept, after the request has been answered.
UNREAD = 128 << 20
# Seconds between two lines in the log on connections that were refused.
_PAUSE = 10.0


class Patient(HttpToolsProtocol):
    """uvicorn's own, with bounds on the head of a request: on its time, its size, and its parts.
    Who breaks one is answered 431 or 414, and hung up on. Bodies are waited for: who sends one has
    shown a token."""

    _late: asyncio.TimerHandle | None = None
    # Bytes that came since the parser last had something whole; and those of a head, in parts.
    _pending = _head = _unread = 0
    _in_head = True
    _refusal: tuple[int, str] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        between = self.cycle is None or self.cycle.response_complete
        if between and self._late is None:
            self._wait()
        while data and not self.transport.is_closing():
            # The parser keeps a head that is not whole: it never gets much more than it may keep.
            piece, data = (data[:HEAD_BYTES], data[HEAD_BYTES:]) if self._in_head else (data, b"")
            self._pending += len(piece)
            super().data_received(piece)
            if self._pending > HEAD_BYTES and not self.transport.is_closing():
                self._refuse(431, f"the head of a request is larger than {HEAD_BYTES} bytes")

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, "this is no HTTP request")))

    # ------------------------------------------------------------ what the parser calls

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            self._stop(431, f"more than {PIPELINED} requests wait on one connection")
        self._in_head, self._head, self._unread = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > URL_BYTES:
            self._stop(414, f"an address of more than {URL_BYTES} bytes is not read")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)
        if len(self.headers) >= HEADERS:
            self._stop(431, f"a request has more than {HEADERS} headers")
        if self._head > HEAD_BYTES:
            self._stop(431, f"the head of a request is larger than {HEAD_BYTES} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._in_head, self._pending = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        if self.cycle.response_complete:
            self._unread += len(body)
            if self._unread > UNREAD:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._pending = True, 0  # what comes next is one
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    # ------------------------------------------------------------ hanging up

    def _stop(self, status: int, message: str) -> None:
        """End the parsing: uvicorn then calls `send_400_response`."""
        self._refusal = (status, message)
        raise ValueError(message)

    def _refuse(self, status: int, message: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer is on its way: another would spoil it
            return
        error = TooLarge(message, hint="a client of this version sends far less")
        body = json.dumps(error.body()).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        self.transport.close()

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Seldom(logging.Filter):
    """Let a line through now and then: strangers do not fill the log."""

    _at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if record.levelno > logging.WARNING or now - self._at > _PAUSE:
            self._at = now
            return True
        return False


# uvicorn's lines on requests that are none.
logging.getLogger("uvicorn.error").addFilter(Seldom())
