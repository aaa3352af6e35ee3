"""Output of ranks: one append-only file for each rank and attempt.

Agents send data with its offset, so each line is stored once: repeated data is ignored, and data
that would leave a gap is refused with the current size.
"""

from __future__ import annotations

import os
from pathlib import Path

from allranks import clock
from allranks.store.files.log_times import LogTimes

# Bytes read at once from the end of a file.
_BLOCK = 1 << 18


class Logs:
    """The logs of one job: ``<folder>/attempts/<attempt>/user_logs/…``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, attempt: int, name: str) -> Path:
        return self._folder / "attempts" / str(attempt) / name

    def append(
        self, attempt: int, rank: int, name: str, offset: int, data: bytes, age: float = 0.0
    ) -> int:
        """Append the new part of ``data``, printed ``age`` seconds ago, and note when. Returns the
        file's size, from which the sender continues; on a full disk, less than was sent."""
        path = self.path(attempt, name)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            size = os.fstat(file).st_size
            if offset > size:
                return size
            # At its offset, so that concurrent writers of the same data store it once.
            end = offset + os.pwrite(file, data, offset)
            if end > size:
                LogTimes(self._folder, attempt).add(rank, size, end, clock.now() - age)
            return max(size, end)
        finally:
            os.close(file)

    def offset_of_last(self, attempt: int, name: str, lines: int) -> int:
        """Where the last ``lines`` lines begin; the file is read from its end."""
        try:
            with self.path(attempt, name).open("rb") as file:
                start = file.seek(0, os.SEEK_END)
                if not lines:
                    return start
                left, block = lines, b""
                while start > 0:
                    size = min(_BLOCK, start)
                    start -= size
                    file.seek(start)
                    last, block = not block, file.read(size)
                    # The end of the last line begins no further one.
                    end = len(block) - (last and block.endswith(b"\n"))
                    while (end := block.rfind(b"\n", 0, end)) >= 0:
                        left -= 1
                        if not left:
                            return start + end + 1
                return 0
        except FileNotFoundError:
            return 0

    def read(self, attempt: int, name: str, offset: int, most: int = 1 << 18) -> bytes:
        """Up to ``most`` bytes from ``offset``; empty at the end, or without a file."""
        try:
            with self.path(attempt, name).open("rb") as file:
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:
            return b""
