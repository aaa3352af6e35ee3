"""How much may be unpacked: no more than was allowed, and never the last of a disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from allranks.errors import AllranksError

# What an entry counts beside its contents, as in a tar: a million empty files are not nothing.
ENTRY = 512
# What is left free of a disk, so that the node can still write why this failed: 64 MiB, and of
# small disks a hundredth.
_RESERVE, _PART = 64 << 20, 100
# Bytes between two looks at the disk, and between two reports, at most.
_STEP, _REPORT = 64 << 20, 8 << 20


class SizeLimit:
    """Of one archive: told of each entry before it is written, and of each piece after."""

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
        """``left`` of the ``limit`` of all; ``sharing``: how many write to the disk at a time.
        ``report`` is now and then told what was taken of it and written, since it was last."""
        self._archive, self._folder, self._limit, self._left = archive, folder, limit, left
        self._sharing, self._report = sharing, report
        self._taken = self._written = 0
        # Bytes until the next look at the disk.
        self._before_look = 0

    def begins(self, size: int, stored: int) -> None:
        """An entry of that size, of which so much will be written. Raises AllranksError."""
        self._taken += size + ENTRY
        self._left -= size + ENTRY
        if self._left < 0:
            raise too_large(self._archive, self._limit)
        self._before_look -= ENTRY
        if stored > self._before_look:
            self._look(stored)
        self._tell(_REPORT)

    def wrote(self, size: int) -> None:
        self._written += size
        self._before_look -= size
        if self._before_look < 0:
            self._look(0)
        self._tell(_REPORT)

    def ends(self) -> None:
        self._tell(0)

    def _tell(self, least: int) -> None:
        if max(self._taken, self._written) >= least:
            self._report(self._taken, self._written)
            self._taken = self._written = 0

    def _look(self, size: int) -> None:
        free = room(self._folder)
        if max(size, 1) > free:
            raise full(self._archive, self._folder)
        # Others write meanwhile: the less is free, the sooner it is looked at again.
        self._before_look = min(_STEP, (free - size) // (2 * self._sharing))


def room(folder: Path) -> int:
    """The bytes that may still be written to its disk. ``folder`` need not be there yet."""
    while True:
        try:
            disk = os.statvfs(folder)
            break
        except OSError:
            if folder == folder.parent:
                raise
            folder = folder.parent
    if not disk.f_blocks:
        return 1 << 62  # some file systems in user space do not tell
    reserve = min(_RESERVE, disk.f_blocks * disk.f_frsize // _PART)
    return max(0, disk.f_bavail * disk.f_frsize - reserve)


def too_large(archive: Path, limit: int) -> AllranksError:
    return AllranksError(
        f"unpacked, it takes more than the {said(limit)} that are allowed: stopped in "
        f"{archive.name}",
        where=str(archive),
        hint="allow more if that is meant; a few bytes that become very many are a trap",
    )


def full(archive: Path, folder: Path) -> AllranksError:
    return AllranksError(
        f"there is not enough room to unpack {archive.name}",
        where=str(folder),
        hint="make room on that disk of the node, or take less data; its last part is kept free",
    )


def said(size: float) -> str:
    """As people say it: 1.5 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"
