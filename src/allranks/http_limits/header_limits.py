"""Limits on the time and size of what unauthenticated HTTP clients may send.

uvicorn limits a request's headers only with h11. Here it uses httptools, which is faster but
buffers without limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from allranks.errors import TooLarge, UsageError
from allranks.http_limits.connection_limit import mark_busy, mark_idle

# Seconds in which the headers of a request must arrive.
HEAD = 20.0
# The most bytes of a request's headers and of its URL, and the most headers.
HEAD_BYTES = 64 << 10
URL_BYTES = 16 << 10
HEADERS = 128
# The most pipelined requests of a connection.
PIPELINED = 8
# The most bytes of a body that are discarded after the request was answered.
UNREAD = 128 << 20
# The key of the request scope with the connection, as a `Patient`.
CONNECTION = "allranks.connection"
# The headers that say how long a body is.
_FRAMING = (b"content-length", b"transfer-encoding")
# Seconds between two log lines about malformed requests.
_PAUSE = 10.0


class Patient(HttpToolsProtocol):
    """uvicorn's protocol with limits on the time and size of a request's headers. A client that
    exceeds one gets 431 or 414, and the connection is closed. Bodies have no time limit, because
    their senders are authenticated."""

    _timer: asyncio.TimerHandle | None = None
    # Bytes received since the parser last completed an element, of the headers, and of a discarded
    # body.
    _pending = _head = _unread = 0
    _in_head = True
    _refusal: tuple[int, str] | None = None
    # Whether the parser gets a head again, only to go on with its body.
    _repeats = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.parser = RequestParser(self)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            # The parser buffers incomplete headers, so it gets little more than the limit at once.
            piece, data = (data[:HEAD_BYTES], data[HEAD_BYTES:]) if self._in_head else (data, b"")
            self._pending += len(piece)
            super().data_received(piece)
            if self._pending > HEAD_BYTES and not self.transport.is_closing():
                self._refuse(431, f"the headers of a request are larger than {HEAD_BYTES} bytes")
        # Most heads come whole, and need no timer.
        between = self.cycle is None or self.cycle.response_complete
        if between and self._pending and self._in_head and self._timer is None:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, "not an HTTP request")))

    # ------------------------------------------------------------ parser callbacks

    def on_message_begin(self) -> None:
        if self._repeats:
            return
        if len(self.pipeline) >= PIPELINED:
            self._stop(431, f"more than {PIPELINED} pipelined requests on one connection")
        self._in_head, self._head, self._unread = True, 0, 0
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        if self._repeats:
            return
        super().on_url(url)
        if len(self.url) > URL_BYTES:
            self._stop(414, f"the URL is longer than {URL_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._repeats:
            return
        self._head += len(name) + len(value)
        if len(self.headers) >= HEADERS:
            self._stop(431, f"a request has more than {HEADERS} headers")
        if self._head > HEAD_BYTES:
            self._stop(431, f"the headers of a request are larger than {HEAD_BYTES} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._repeats:
            return
        self._stop_timer()
        mark_busy(self.transport)
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
        if self.parser.should_upgrade():
            return  # the parser skips the body: see `resume_without_upgrade`
        self._in_head, self._pending = True, 0  # headers follow
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            mark_idle(self.transport)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    # ------------------------------------------------------------ upgrades

    def take_over(self) -> asyncio.Transport:
        """The connection, for a protocol other than HTTP: uvicorn does not know it any more."""
        self.cycle.disconnected = True
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        return self.transport

    def resume_without_upgrade(self, rest: bytes) -> None:
        """Parse what follows the head of a request for an upgrade as its body: a route takes the
        connection over, or nobody (RFC 9110, 7.8). curl and Java offer HTTP/2 with any request."""
        framing = [b"%s: %s\r\n" % header for header in self.headers if header[0] in _FRAMING]
        self.parser = RequestParser(self)
        self._repeats = True
        self.parser.feed_data(b"".join((b"POST / HTTP/1.1\r\n", *framing, b"\r\n")))
        self._repeats = False
        self.parser.feed_data(rest)

    def _should_upgrade(self) -> bool:
        """No: to uvicorn all are requests."""
        return False

    # ------------------------------------------------------------ refusing

    def _stop(self, status: int, message: str) -> None:
        """Abort parsing; uvicorn then calls `send_400_response`."""
        self._refusal = (status, message)
        raise ValueError(message)

    def _refuse(self, status: int, message: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # a response is being sent: a second one would corrupt it
            return
        error = (
            UsageError(message, hint="send HTTP/1.1, as the command line does")
            if status == 400
            else TooLarge(message, hint="no client of allranks sends this much")
        )
        body = json.dumps(error.body()).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        self.transport.close()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEAD, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RequestParser(HttpRequestParser):
    """A parser that reads the bodies of requests for upgrades."""

    def __init__(self, connection: Patient) -> None:
        super().__init__(connection)
        self._connection = connection

    def feed_data(self, data: Any) -> None:
        try:
            super().feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._connection.resume_without_upgrade(data[upgrade.args[0] :])


class _RateLimit(logging.Filter):
    """Limit the rate of log lines, so that strangers cannot fill the log."""

    _at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if record.levelno > logging.WARNING or now - self._at > _PAUSE:
            self._at = now
            return True
        return False


def _is_a_fault(record: logging.LogRecord) -> bool:
    """Whether it is not about a stream that the end of the server cut."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


# uvicorn's lines on malformed requests, and its stack traces.
logging.getLogger("uvicorn.error").addFilter(_RateLimit())
logging.getLogger("uvicorn.error").addFilter(_is_a_fault)
