"""Output of ranks: one append-only file for each rank and attempt.

Agents send data with its offset, so each line is stored once: repeated data is ignored, and data
that would leave a gap is refused with the current size.
"""

from __future__ import annotations

import os
from pathlib import Path


class Logs:
    """The logs of one job: ``<folder>/attempts/<attempt>/user_logs/…``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, attempt: int, name: str) -> Path:
        return self._folder / "attempts" / str(attempt) / name

    def append(self, attempt: int, name: str, offset: int, data: bytes) -> int:
        """Append the new part of ``data``. Returns the file's size, from which the sender
        continues; on a full disk, less than was sent."""
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
            written = os.pwrite(file, data, offset)
            return max(size, offset + written)
        finally:
            os.close(file)

    def read(self, attempt: int, name: str, offset: int, most: int = 1 << 18) -> bytes:
        """Up to ``most`` bytes from ``offset``; empty at the end, or without a file."""
        try:
            with self.path(attempt, name).open("rb") as file:
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:
            return b""
