"""Disk space that the home keeps for its own words, so that jobs end, and can be canceled and
deleted, on a disk that their files have filled.

The record's is inside the database, where no other program can take it. For files there is a file
that is removed once a job ends on a full disk; a new one is made when there is enough again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.disk_space import RESERVE

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = logging.getLogger("allranks.disk")

# Bytes of the file, and in the database: its log is written from its start again after 4 MB.
_FILE, _PAGES = 4 << 20, 6 << 20
# With less free space, nothing is reserved: it would fill the disk itself.
_LEAST = 2 * (_FILE + 2 * _PAGES)


class DiskReserve:
    """Keeps the reserve, from ``start`` until ``stop``."""

    def __init__(self, root: Path, database: Engine, pace: float = 2.0) -> None:
        self._root, self._database, self._pace = root, database, pace
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk reserve", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.fill()
            except Exception:
                log.exception("no space can be reserved; trying again")
            self._stopping.wait(self._pace)

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
