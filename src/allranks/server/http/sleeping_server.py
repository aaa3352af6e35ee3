"""uvicorn's server without its tick: it wakes once a second, and at once when it has to exit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import uvicorn

# Seconds. Answers have the time in a header, which uvicorn renews at a tick.
_TICK = 1.0


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
