"""Units of work that several threads share, such as contents to send over a few connections."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

CONNECTIONS = 4
# The interval of progress reports, and the time for connections to stop.
_BEAT, _END = 0.1, 2.0

Unit = TypeVar("Unit", contravariant=True)
Item = TypeVar("Item")


class Interrupted(Exception):
    """The work was interrupted, or failed in another thread."""


class Worker(Protocol[Unit]):
    """Does units of work in a thread of its own. Raises Interrupted and AllranksError."""

    def do(self, unit: Unit) -> None: ...

    def close(self) -> None: ...


class Shared(Generic[Unit]):
    """Units of work that several workers take."""

    def __init__(self, units: Iterable[Unit], stop: threading.Event) -> None:
        self._units, self._stop = deque(units), stop
        self._failed: list[BaseException] = []

    def run(self, worker: Callable[[], Worker[Unit]], progress: Callable[[], None]) -> None:
        """Do all units. Raises the first error, and KeyboardInterrupt at once."""
        # Daemon threads: one that waits for a silent server does not block the exit.
        count = min(CONNECTIONS, len(self._units))
        threads = [
            threading.Thread(target=self._work, args=[worker], daemon=True) for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive() and not self._stop.is_set():
                    progress()
                    thread.join(_BEAT)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(_END / len(threads))
        if self._failed:
            raise self._failed[0]

    def _work(self, worker: Callable[[], Worker[Unit]]) -> None:
        try:
            with contextlib.closing(worker()) as own:
                self._do_all(own)
        except Interrupted:
            pass
        except BaseException as error:
            self._failed.append(error)
            self._stop.set()

    def _do_all(self, worker: Worker[Unit]) -> None:
        while not self._stop.is_set() and self._units:
            try:
                unit = self._units.popleft()
            except IndexError:  # another thread took the last one
                return
            worker.do(unit)


def packs(
    items: Iterable[Item], size: Callable[[Item], int], most: int, count: int
) -> Iterator[list[Item]]:
    """The items in their order, in packs of at most ``count``, and of ``most`` bytes unless one
    alone has more."""
    pack, total = list[Item](), 0
    for item in items:
        if pack and (total + size(item) > most or len(pack) == count):
            yield pack
            pack, total = [], 0
        pack.append(item)
        total += size(item)
    if pack:
        yield pack


def large_first(
    items: Sequence[Item], size: Callable[[Item], int], small: int, most: int, count: int
) -> Iterator[list[Item]]:
    """Items of more than ``small`` bytes, one by one; then the others in packs."""
    large = [item for item in items if size(item) > small]
    yield from ([item] for item in sorted(large, key=size, reverse=True))
    yield from packs([item for item in items if size(item) <= small], size, most, count)
