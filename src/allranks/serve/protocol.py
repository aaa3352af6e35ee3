"""uvicorn's protocol with limits on the head of a request, and answers whose head and body are sent
at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from allranks.http_limits import server
from allranks.http_limits.header_limits import Patient

# Bytes of a piece that are not joined with what follows.
_LONGEST = 64 << 10
# The key of the request scope with what `send_whole` needs.
CYCLE = "allranks.cycle"


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

    def write_now(self, data: bytes) -> None:
        self._pieces.append(data)
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
    """Limits the time and size of a head as the server does: callers need no key to send one. Its
    timer of an idle connection serves many requests: one for each would cost as much as parsing."""

    _idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Joined(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        super()._unset_keepalive_if_required()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        cycle.scope[CYCLE] = cycle
        super()._start_asgi_task(cycle, app)

    def _unset_keepalive_if_required(self) -> None:
        """Keep the timer: see `timeout_keep_alive_handler`."""

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        if self.pipeline or self.timeout_keep_alive_task is None:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        since = self._idle_since if is_idle else self.loop.time()
        until = since + self.timeout_keep_alive
        if until <= self.loop.time():
            super().timeout_keep_alive_handler()
        else:
            call_again = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_at(until, call_again)


def config(app: Callable[..., Any], grace: int, **more: Any) -> uvicorn.Config:
    """The configuration of each of the router's listeners."""
    return server.config(app, http=Bounded, keep_alive=75, grace=grace, proxied=False, **more)


def send_whole(
    cycle: Any, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> bool:
    """Send all of an answer by one write; False if nothing was sent, because the connection closes
    after it, its caller is slow, or it has no body. Names and values of headers are not checked."""
    is_plain = cycle.keep_alive and cycle.scope["method"] != "HEAD" and status not in (204, 304)
    if not is_plain or cycle.disconnected or cycle.response_started or cycle.flow.write_paused:
        return False
    lines = [STATUS_LINE[status]]
    lines += [b"%s: %s\r\n" % header for header in (*cycle.default_headers, *headers)]
    if all(name != b"content-length" for name, _ in headers):
        lines.append(b"content-length: %d\r\n" % len(body))
    cycle.transport.write_now(b"".join((*lines, b"\r\n", body)))
    cycle.response_started = cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True
