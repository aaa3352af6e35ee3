"""Wake those who wait for news of a job: streams, `job wait`, agents that wait for orders."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple


class _Waiter(NamedTuple):
    future: asyncio.Future[None]
    concerns: Callable[[], bool] | None


class Wakeups:
    """``notify`` is thread-safe; ``wait`` is for the server's event loop.

    A waiter takes the ``count``, checks its condition, then waits for a higher count: news between
    the check and the wait are not lost. The name ``ALL`` stands for any job.
    """

    ALL = ""

    def __init__(self) -> None:
        self._counts: dict[str, int] = defaultdict(int)
        # By name, and whether new output wakes them, too.
        self._waiting: dict[tuple[str, bool], list[_Waiter]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        # What `_wake` will be called with: news in between need no other call.
        self._noted: set[tuple[str, bool]] = set()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def count(self, name: str) -> int:
        return self._counts[name]

    def notify(self, name: str, *, output: bool = False) -> None:
        """Wake those who wait for news. ``output``: only logs or points are new."""
        news = (name, output)
        if self._loop is not None and not self._loop.is_closed() and news not in self._noted:
            self._noted.add(news)
            self._loop.call_soon_threadsafe(self._wake, *news)

    async def wait(
        self,
        name: str,
        count: int,
        timeout: float,
        concerns: Callable[[], bool] | None = None,
    ) -> None:
        """Return once the count exceeds ``count``, or after ``timeout`` seconds. News after which
        ``concerns`` is false do not count: it is called with each, and much cheaper than waking.
        With ``concerns``, new output does not count either: each node of a gang prints, and to ask
        all others each time would cost the square of their number."""
        if self._counts[name] > count and (concerns is None or concerns()):
            return
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), concerns)
        key = (name, concerns is None)
        self._waiting.setdefault(key, []).append(waiter)
        timer = loop.call_later(timeout, _end, waiter.future)
        try:
            await waiter.future
        finally:
            timer.cancel()
            waiting = self._waiting.get(key, [])
            if waiter in waiting:
                waiting.remove(waiter)
            if not waiting:
                self._waiting.pop(key, None)

    def _wake(self, name: str, output: bool) -> None:
        self._noted.discard((name, output))
        for job in (name, self.ALL):
            self._counts[job] += 1
            for key in [(job, True)] if output else [(job, True), (job, False)]:
                for waiter in self._waiting.pop(key, []):
                    if _is_concerned(waiter):
                        _end(waiter.future)
                    else:
                        self._waiting.setdefault(key, []).append(waiter)


def _is_concerned(waiter: _Waiter) -> bool:
    try:
        return waiter.concerns is None or waiter.concerns()
    except Exception:
        return True  # it meets the error itself, and the others are still woken


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
