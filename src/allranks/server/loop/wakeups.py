"""Wake those who wait for news of a job: streams, `job wait`, agents that wait for orders."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class Wakeups:
    """``notify`` is thread-safe; ``wait`` is for the server's event loop.

    A waiter takes the ``count``, checks its condition, then waits for a higher count: news between
    the check and the wait are not lost. The name ``ALL`` stands for any job.
    """

    ALL = ""

    def __init__(self) -> None:
        self._counts: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def count(self, name: str) -> int:
        return self._counts[name]

    def notify(self, name: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, name)

    async def wait(self, name: str, count: int, timeout: float) -> None:
        """Return once the count exceeds ``count``, or after ``timeout`` seconds."""
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

    def _wake(self, name: str) -> None:
        for key in (name, self.ALL):
            self._counts[key] += 1
            for future in self._waiting.pop(key, ()):
                if not future.done():
                    future.set_result(None)
