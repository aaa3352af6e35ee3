"""When output was printed: by it, the output of all ranks becomes one log.

A log itself has no times. Beside it, `<job>/log-times/<attempt>` has an entry for each piece of
output, in the order in which pieces arrived.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from allranks import disk_space, folder_trees

# The folder of a job's record with these files.
FOLDER = "log-times"
# The time, the place in the log, the length, and the rank. A full disk takes whole blocks, and so
# whole entries.
_ENTRY = struct.Struct("<dQII8x")
# Bytes of an entry's output at most, and entries that are read at once.
_PIECE, _BATCH = 32 << 10, 1 << 14


class Entry(NamedTuple):
    """``at``: seconds since the epoch; 0 if nobody noted it. The rank printed the bytes from
    ``start`` to ``end`` of its log."""

    at: float
    rank: int
    start: int
    end: int


class LogTimes:
    """The entries of one attempt, numbered from 0."""

    def __init__(self, job_folder: Path, attempt: int) -> None:
        self._folder, self._path = job_folder, job_folder / FOLDER / str(attempt)

    def add(self, rank: int, start: int, end: int, at: float) -> None:
        """Note a part of a rank's output that has arrived, and when it was printed. If the disk is
        full, nothing is noted: output counts more than its order."""
        places = [(first, min(end, first + _PIECE)) for first in range(start, end, _PIECE)]
        data = b"".join(_ENTRY.pack(at, first, last - first, rank) for first, last in places)
        with contextlib.suppress(OSError):
            if start == 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            with folder_trees.open_file(self._path, "ab", self._folder, 0) as file:
                file.write(data)

    def count(self) -> int:
        """The number of entries; 0 for output of a version without them."""
        with (
            folder_trees.SkipAbsent(),
            folder_trees.open_file(self._path, "rb", self._folder, 0) as file,
        ):
            size, hole = os.fstat(file.fileno()).st_size, disk_space.LARGE_HOLE
            if size - disk_space.data_size(file.fileno(), size - hole) <= hole:
                return size // _ENTRY.size
        return 0  # there is none, or the job made it larger

    def read(self, first: int, end: int) -> list[Entry]:
        """The entries with the numbers from ``first`` to before ``end``."""
        return [
            Entry(at, rank, start, start + length)
            for at, start, length, rank in _ENTRY.iter_unpack(self._bytes(first, end))
        ]

    def find(self, places: Collection[tuple[int, int]]) -> int | None:
        """The first entry that has one of these bytes of a rank."""
        by_rank: dict[int, list[int]] = {}
        for rank, place in places:
            by_rank.setdefault(rank, []).append(place)
        for first in range(0, self.count(), _BATCH):
            # There may be millions: a named tuple of each would take ten times as long.
            entries = _ENTRY.iter_unpack(self._bytes(first, first + _BATCH))
            for number, (_, start, length, rank) in enumerate(entries, first):
                if rank in by_rank and any(0 <= at - start < length for at in by_rank[rank]):
                    return number
        return None

    def _bytes(self, first: int, end: int) -> bytes:
        """Whole entries."""
        with folder_trees.open_file(self._path, below=self._folder) as file:
            file.seek(first * _ENTRY.size)
            data = file.read((end - first) * _ENTRY.size)
        return data[: len(data) - len(data) % _ENTRY.size]
