"""Output of ranks: one append-only file for each rank and attempt.

Agents send data with its offset, so each line is stored once: repeated data is ignored, and data
that would leave a gap is refused with the current size.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from allranks import clock, disk_space, folder_trees
from allranks.store.files.log_times import LogTimes

# Bytes read at once from the end of a file.
_BLOCK = 1 << 18
# Bytes after which the start of a file with a limit is freed.
_FREED = 1 << 20


class Logs:
    """The logs of one job: ``<folder>/attempts/<attempt>/user_logs/…``. The job can write there,
    too: what is no file, or lies behind a link, is not read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, attempt: int, name: str) -> Path:
        return self._folder / "attempts" / str(attempt) / name

    def append(
        self,
        attempt: int,
        rank: int,
        name: str,
        offset: int,
        data: bytes,
        age: float = 0.0,
        limit: int | None = None,
    ) -> int:
        """Append the new part of ``data``, printed ``age`` seconds ago, and note when. Returns the
        file's size, from which the sender continues; on a full disk, less than was sent. Of a file
        with a ``limit`` only so many bytes are kept, the newest; it keeps its size."""
        file = self._open_to_write(f"attempts/{attempt}/{name}")
        try:
            size = os.fstat(file).st_size
            if offset > size:
                return size
            # At its offset, so that concurrent writers of the same data store it once.
            end = offset + os.pwrite(file, data, offset)
            if end > size:
                LogTimes(self._folder, attempt).add(rank, size, end, clock.now() - age)
                if limit is not None and end > limit and end // _FREED > size // _FREED:
                    disk_space.free_start(file, end - limit)
            return max(size, end)
        finally:
            os.close(file)

    def _open_to_write(self, path: str) -> int:
        """A link or a pipe of the job in its place is replaced."""
        folder_trees.make(self._folder)
        flags = os.O_WRONLY | os.O_CREAT
        try:
            return folder_trees.open_below(self._folder, path, flags, make=True)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
                raise
        above, name = folder_trees.open_parent(self._folder, path)
        try:
            os.unlink(name, dir_fd=above)
        finally:
            os.close(above)
        return folder_trees.open_below(self._folder, path, flags, make=True)

    def _open(self, attempt: int, name: str) -> BinaryIO:
        return folder_trees.open_file(self.path(attempt, name), below=self._folder)

    def kept_from(self, attempt: int, name: str, offset: int) -> int:
        """The first byte from ``offset`` on that is kept: there, or where a line begins."""
        # There may be none, or nothing more.
        with folder_trees.SkipAbsent(), self._open(attempt, name) as file:
            start = os.lseek(file.fileno(), offset, os.SEEK_DATA)
            if start > offset:
                file.seek(start)
                return start + len(file.readline(_BLOCK))
        return offset

    def offset_of_last(self, attempt: int, name: str, lines: int) -> int:
        """Where the last ``lines`` lines begin; the file is read from its end."""
        first = self.kept_from(attempt, name, 0)
        with folder_trees.SkipAbsent(), self._open(attempt, name) as file:
            start = file.seek(0, os.SEEK_END)
            if not lines:
                return start
            left, block = lines, b""
            while start > first:
                size = min(_BLOCK, start - first)
                start -= size
                file.seek(start)
                last, block = not block, file.read(size)
                # The end of the last line begins no further one.
                end = len(block) - (last and block.endswith(b"\n"))
                while (end := block.rfind(b"\n", 0, end)) >= 0:
                    left -= 1
                    if not left:
                        return start + end + 1
            return first
        return 0

    def read(self, attempt: int, name: str, offset: int, most: int = 1 << 18) -> bytes:
        """Up to ``most`` bytes from ``offset``; empty at the end, or without a file. Raises
        OSError."""
        with folder_trees.SkipAbsent(), self._open(attempt, name) as file:
            file.seek(offset)
            return file.read(most)
        return b""
