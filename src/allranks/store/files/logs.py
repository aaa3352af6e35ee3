"""The output of ranks in the record: one file a rank and attempt, grown at its end only.

The offset makes every line come once: what is sent twice is already there and dropped, what would
leave a hole is refused with the size we have. Nothing else has to be remembered, on either side.
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
        """Grow the file by what of ``data`` is new; the size it then has, which the sender goes
        on from. Short of room it may be less than was sent."""
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
            # Where it belongs, not at the end: two who write the same write it once.
            written = os.pwrite(file, data, offset)
            return max(size, offset + written)
        finally:
            os.close(file)

    def read(self, attempt: int, name: str, offset: int, most: int = 1 << 18) -> bytes:
        """Up to ``most`` bytes from ``offset``; empty at the end, or when there is no file yet."""
        try:
            with self.path(attempt, name).open("rb") as file:
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:
            return b""
