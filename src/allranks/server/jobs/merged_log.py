"""The output of all ranks of an attempt as one log, by time.

Windows are pieces in the order in which they arrived, a few tenths of a second after they were
printed; within a window lines are in the order in which they were printed. A line belongs to the
piece that ends it, so that windows have each line once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks import disk_space, folder_trees
from allranks.store.files.log_times import Entry, LogTimes

if TYPE_CHECKING:
    from allranks.api.jobs import MergedLine

# Bytes of a window, of a line that is shown, and before a window in which its first lines begin.
WINDOW, _LINE, _BACK = 128 << 10, 4 << 10, 64 << 10
# Entries that are read at once, and bytes of those that are made up.
_BATCH, _PIECE = 1 << 10, 32 << 10
# Bytes of a rank that are read at once, whatever a job has put into its record.
_LONGEST = 64 << 20


class Window(NamedTuple):
    """Pieces from ``begin`` to before ``end``."""

    begin: int
    end: int


class MergedLog:
    """``paths``: the log of each rank."""

    def __init__(self, times: LogTimes, paths: dict[int, Path]) -> None:
        self._times, self._paths = times, paths
        self.ordered = times.count() > 0
        # Output of a version that noted no times: one rank after the other.
        self._made = [] if self.ordered else list(_made_up(paths))
        self.pieces = times.count() if self.ordered else len(self._made)

    def find(self, places: Collection[tuple[int, int]]) -> int | None:
        """The first piece with one of these bytes of a rank."""
        if self.ordered:
            return self._times.find(places)
        inside = (
            number
            for number, entry in enumerate(self._made)
            if any(entry.rank == rank and entry.start <= at < entry.end for rank, at in places)
        )
        return next(inside, None)

    def before(self, end: int, size: int = WINDOW) -> Window:
        """The pieces before a number, with about ``size`` bytes."""
        end = begin = min(end, self.pieces)
        while begin and size > 0:
            first = max(0, begin - _BATCH)
            for entry in reversed(self._entries(first, begin)):
                if size <= 0:
                    break
                begin -= 1
                size -= entry.end - entry.start
        return Window(begin, end)

    def after(self, begin: int, size: int = WINDOW) -> Window:
        """The pieces from a number on, with about ``size`` bytes."""
        end = begin = min(begin, self.pieces)
        while end < self.pieces and size > 0:
            for entry in self._entries(end, min(end + _BATCH, self.pieces)):
                if size <= 0:
                    break
                end += 1
                size -= entry.end - entry.start
        return Window(begin, end)

    def lines(self, window: Window) -> list[MergedLine]:
        """The lines that end within the window."""
        by_rank: dict[int, list[Entry]] = {}
        for entry in self._entries(*window):
            by_rank.setdefault(entry.rank, []).append(entry)
        lines = [
            line
            for rank, own in by_rank.items()
            if rank in self._paths
            for line in self._of_rank(rank, own)
        ]
        return sorted(lines, key=itemgetter("at"))

    def unfinished(self) -> Iterator[MergedLine]:
        """What ranks printed last, without a line end."""
        for rank, path in self._paths.items():
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                continue
            first = max(0, size - _BACK)
            rest = _read(path, first, size).rpartition(b"\n")[2]
            if rest:
                yield _line(rank, size - len(rest), 0.0, rest)

    def _of_rank(self, rank: int, own: list[Entry]) -> Iterator[MergedLine]:
        """The lines of one rank. Its times do not decrease, however long its pieces travelled."""
        start = max(0, own[0].start - _BACK)
        data = _read(self._paths[rank], start, own[-1].end)
        begin = data.rfind(b"\n", 0, own[0].start - start) + 1
        at = 0.0
        for entry in own:
            at = max(at, entry.at)
            while (end := data.find(b"\n", begin, entry.end - start)) >= 0:
                yield _line(rank, start + begin, at, data[begin:end])
                begin = end + 1

    def _entries(self, first: int, end: int) -> list[Entry]:
        if not self.ordered:
            return self._made[first:end]
        return self._times.read(first, end)


def _made_up(paths: dict[int, Path]) -> Iterator[Entry]:
    for rank, path in paths.items():
        with folder_trees.SkipAbsent(), folder_trees.open_file(path) as file:
            size, start = os.fstat(file.fileno()).st_size, 0
            while (start := disk_space.after_hole(file.fileno(), start)) < size:
                end = min(size, start + _PIECE)
                yield Entry(0.0, rank, start, end)
                start = end


def _read(path: Path, start: int, end: int) -> bytes:
    with folder_trees.SkipAbsent(), folder_trees.open_file(path) as file:
        file.seek(start)
        return file.read(min(end - start, _LONGEST)).lstrip(b"\0")  # of what is kept no more
    return b""


def _line(rank: int, offset: int, at: float, data: bytes) -> MergedLine:
    """The line in its last state, if it was drawn over with carriage returns."""
    text = data.rstrip(b"\r").rpartition(b"\r")[2][:_LINE].decode(errors="replace")
    return {"rank": rank, "offset": offset, "at": at, "text": text}
