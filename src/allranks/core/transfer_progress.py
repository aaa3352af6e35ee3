"""How far some work is: one type for all that sends, fetches, reads and writes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from allranks.core.amounts import counted, size_text

# The speed is that of so many seconds.
_WINDOW = 5.0


class Progress(NamedTuple):
    """``done`` of ``total`` bytes of ``what``; a total of None is not known. ``files`` of
    ``of_files`` where they are counted, ``moved`` what came over a network where that is less."""

    what: str = ""
    done: int = 0
    total: int | None = None
    files: int = 0
    of_files: int = 0
    moved: int | None = None


OnProgress = Callable[[Progress], None]


def unheard(progress: Progress) -> None:
    """Nobody wants to know."""


class Meter:
    """How fast some work goes; ``now`` is in seconds, by any clock that is not set."""

    def __init__(self) -> None:
        self._what = ""
        self._marks: deque[tuple[float, int]] = deque()

    def rate(self, progress: Progress, now: float) -> float:
        """Bytes a second, lately; 0 where that is not known yet."""
        if progress.what != self._what:
            self._what = progress.what
            self._marks.clear()
        moved = progress.done if progress.moved is None else progress.moved
        self._marks.append((now, moved))
        while self._marks[0][0] < now - _WINDOW:
            self._marks.popleft()
        began, before = self._marks[0]
        return (moved - before) / (now - began) if now > began else 0.0


def percent(progress: Progress) -> str:
    """``17 %``; empty where the total is not known."""
    if not progress.total:
        return ""
    return f"{min(100, 100 * progress.done // progress.total)} %"


def amounts(progress: Progress, rate: float, seconds: Callable[[float], str]) -> str:
    """``3/12 files, 3.4 MB of 20.0 MB, 1.1 MB/s, 15.1 s left``; ``seconds`` says a time."""
    words = [f"{progress.files}/{counted(progress.of_files, 'file')}"] if progress.of_files else []
    if progress.total is not None:
        words.append(f"{size_text(progress.done)} of {size_text(progress.total)}")
    elif progress.done:
        words.append(size_text(progress.done))
    if rate > 0:
        words.append(f"{size_text(rate)}/s")
    if rate > 0 and progress.total is not None:
        words.append(f"{seconds(max(0, progress.total - progress.done) / rate)} left")
    return ", ".join(words)
