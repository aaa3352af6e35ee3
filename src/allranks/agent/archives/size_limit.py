"""Limit the unpacked size, and keep some disk space free."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from allranks.core.amounts import size_text
from allranks.errors import AllranksError

# Bytes counted for each entry besides its contents, because a million empty files also take space.
ENTRY_SIZE = 512
# Disk space to keep free, so that the node can still write logs: 64 MiB, or 1/100 of a small disk.
_RESERVE, _RESERVE_FRACTION = 64 << 20, 100
# Bytes written between two checks of the disk, and between two reports.
_CHECK_INTERVAL, _REPORT_INTERVAL = 64 << 20, 8 << 20


class SizeLimit:
    """Counts what one archive unpacks: call `begin_entry` before each entry, `count_written` after
    each chunk."""

    def __init__(
        self,
        archive: Path,
        folder: Path,
        *,
        limit: int,
        left: int,
        sharing: int,
        report: Callable[[int, int], None],
    ) -> None:
        """``left``: remaining bytes of the ``limit`` for all archives. ``sharing``: number of
        processes writing to the disk. ``report`` receives the bytes counted against the limit and
        the bytes written since its last call."""
        self._archive, self._folder, self._limit, self._left = archive, folder, limit, left
        self._sharing, self._report = sharing, report
        self._taken = self._written = 0
        self._until_check = 0

    def begin_entry(self, size: int, stored: int) -> None:
        """Count an entry of ``size`` bytes, ``stored`` without holes. Raises AllranksError."""
        self._taken += size + ENTRY_SIZE
        self._left -= size + ENTRY_SIZE
        if self._left < 0:
            raise too_large(self._archive, self._limit)
        self._until_check -= ENTRY_SIZE
        if stored > self._until_check:
            self._check_disk(stored)
        self._report_counts(_REPORT_INTERVAL)

    def count_written(self, size: int) -> None:
        self._written += size
        self._until_check -= size
        if self._until_check < 0:
            self._check_disk(0)
        self._report_counts(_REPORT_INTERVAL)

    def finish(self) -> None:
        self._report_counts(0)

    def _report_counts(self, least: int) -> None:
        if max(self._taken, self._written) >= least:
            self._report(self._taken, self._written)
            self._taken = self._written = 0

    def _check_disk(self, size: int) -> None:
        free = free_bytes(self._folder)
        if max(size, 1) > free:
            raise disk_full(self._archive, self._folder)
        # Others write too: the less is free, the sooner to check again.
        self._until_check = min(_CHECK_INTERVAL, (free - size) // (2 * self._sharing))


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written to the disk of ``folder``, which need not exist yet."""
    while True:
        try:
            disk = os.statvfs(folder)
            break
        except OSError:
            if folder == folder.parent:
                raise
            folder = folder.parent
    if not disk.f_blocks:
        return 1 << 62  # some FUSE file systems report no size
    reserve = min(_RESERVE, disk.f_blocks * disk.f_frsize // _RESERVE_FRACTION)
    return max(0, disk.f_bavail * disk.f_frsize - reserve)


def too_large(archive: Path, limit: int) -> AllranksError:
    return AllranksError(
        f"the unpacked data exceeds the limit of {size_text(limit)}; stopped in {archive.name}",
        where=str(archive),
        hint="check the archives: an archive bomb unpacks to very much data",
    )


def disk_full(archive: Path, folder: Path) -> AllranksError:
    return AllranksError(
        f"not enough disk space to unpack {archive.name}",
        where=str(folder),
        hint="free space on that disk of the node, or use less data; a small reserve stays free",
    )
