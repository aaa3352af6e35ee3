"""Disk space that the home keeps for its own words, so that jobs end, and can be canceled and
deleted, on a disk that their files have filled.

The record's is inside the database, where no other program can take it. For files there is a file
that is removed once a job ends on a full disk; a new one is made when there is enough again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.disk_space import RESERVE
from allranks.server.worker import Worker

if TYPE_CHECKING:
    from sqlalchemy import Engine

# Bytes of the file, and in the database: its log is written from its start again after 4 MB.
_FILE, _PAGES = 4 << 20, 6 << 20
# With less free space, nothing is reserved: it would fill the disk itself.
_LEAST = 2 * (_FILE + 2 * _PAGES)


class DiskReserve(Worker):
    """Keeps the reserve."""

    def __init__(self, root: Path, database: Engine, pace: float = 2.0) -> None:
        super().__init__("disk reserve", retry=pace)
        self._root, self._database, self._pace = root, database, pace

    def look(self, names: set[str]) -> float:
        self.fill()
        return self._pace

    def fill(self) -> None:
        """Reserve what is missing, if there is space. Raises OSError, and the database's errors."""
        if shutil.disk_usage(self._root).free < _LEAST:
            return
        from allranks.store.database import reserve_pages  # lazy: not before the port is bound

        reserve_pages(self._database, _PAGES)
        if (self._root / RESERVE).exists():
            return
        beside = self._root / f"{RESERVE}.new"
        try:
            beside.touch(0o600)
            with beside.open("wb") as file:
                if sys.platform == "linux":
                    os.posix_fallocate(file.fileno(), 0, _FILE)
                else:
                    file.write(bytes(_FILE))
            beside.rename(self._root / RESERVE)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
