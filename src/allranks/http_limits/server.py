"""uvicorn's server with the limits that all listeners share, and without its tick: it wakes once a
second, and at once when it has to exit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from allranks.http_limits.header_limits import Patient

# Seconds. Answers have the time in a header, which uvicorn renews at a tick.
_TICK = 1.0


def config(
    app: Callable[..., Any],
    *,
    http: type[Patient] = Patient,
    certificate: str | None = None,
    most: int | None = None,
    keep_alive: int = 5,
    grace: int = 1,
    proxied: bool = True,
    lifespan: bool = False,
) -> uvicorn.Config:
    """The configuration of a listener with at most ``most`` concurrent connections. An idle one is
    closed after ``keep_alive`` seconds; requests that run at the end get ``grace`` seconds. Unless
    ``proxied``, what a proxy of this machine says of its callers is not read. Raises OSError or
    ValueError for an invalid certificate."""
    loaded = uvicorn.Config(
        app,
        http=http,
        loop="asyncio",  # uvloop accepts connections without calling Listener.accept
        interface="asgi3",  # uvicorn takes a bound method for ASGI 2
        proxy_headers=proxied,
        ssl_certfile=certificate,
        log_config=None,
        access_log=False,
        lifespan="on" if lifespan else "off",
        limit_concurrency=most,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=grace,
    )
    loaded.load()
    return loaded


class SleepingServer(uvicorn.Server):
    """uvicorn's looks ten times a second whether ``should_exit`` is set, which is half of what an
    idle server does."""

    _loop: asyncio.AbstractEventLoop | None = None
    _leave: asyncio.Event | None = None
    _should_exit = False
    # Called once the server answers.
    ready: Callable[[], None] = staticmethod(lambda: None)

    @property
    def should_exit(self) -> bool:
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        """Thread-safe, and for signal handlers."""
        self._should_exit = value
        if value and self._loop is not None and self._leave is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._leave.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._leave = asyncio.Event()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leave.wait(), _TICK)


class SecondServer(SleepingServer):
    """A server beside the main one of its process, which alone captures signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def leave(self) -> None:
        """Accept no more; what is being answered ends by itself."""
        for listener in getattr(self, "servers", ()):  # none before it has started
            listener.close()
        self.should_exit = True
