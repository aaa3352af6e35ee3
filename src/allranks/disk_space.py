"""Whether a disk has space left, and what takes none."""

from __future__ import annotations

import os
from pathlib import Path

# With less space, in bytes, a transaction of the database or a log's next lines may not fit.
_LEAST = 1 << 16
# File systems keep no smaller hole.
_HOLE = 4096


def is_full(folder: Path) -> bool:
    """Whether the folder's disk has no space or no inodes left for this user; False if it cannot
    be examined. Blocks while a network disk does not answer."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    reserved_too = os.geteuid() == 0  # root may use the blocks that ext4 reserves
    blocks = disk.f_bfree if reserved_too else disk.f_bavail
    # A file system without a limit on inodes has none in total.
    return blocks * disk.f_frsize < _LEAST or (disk.f_files > 0 and disk.f_ffree == 0)


def is_hole(piece: bytes | memoryview) -> bool:
    """Whether a piece of a file needs no disk space: it is all zeros."""
    return len(piece) >= _HOLE and not piece[0] and piece == bytes(len(piece))
