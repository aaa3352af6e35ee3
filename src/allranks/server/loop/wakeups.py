"""Wakes those who wait for news of a job: streams, waiting commands, agents that await orders."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class Wakeups:
    """Rung from any thread, waited on in the server's event loop.

    A waiter first takes the ``count``, looks at what it waits for, then waits for the next count:
    news between the look and the wait is not lost.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    def belongs_to(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def count(self, name: str) -> int:
        return self._counts[name]

    def ring(self, name: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung, name)

    async def wait(self, name: str, count: int, timeout: float) -> None:
        """Return once the count is over ``count``, or after ``timeout`` seconds."""
        if self._counts[name] > count:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name].add(future)
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            pass
        finally:
            self._waiting[name].discard(future)

    def _rung(self, name: str) -> None:
        self._counts[name] += 1
        for future in self._waiting.pop(name, ()):
            if not future.done():
                future.set_result(None)
