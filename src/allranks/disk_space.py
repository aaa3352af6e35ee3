"""Whether a disk has space left, the reserve of a home for when it has not, and what takes none."""

from __future__ import annotations

import contextlib
import errno
import math
import os
from pathlib import Path

# With less space, in bytes, a transaction of the database or a log's next lines may not fit.
_LEAST = 1 << 16
# FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, see fallocate(2); whole blocks of any file system.
_PUNCH_HOLE, _ALIGNED = 3, 1 << 16
# A file of the home that only takes space.
RESERVE = "reserve"
# File systems keep no smaller hole.
_HOLE = 4096
# Bytes of a hole that readers pass over.
LARGE_HOLE = 1 << 20
# Bytes of holes in a file that is not copied.
_HUGE_HOLE = 1 << 30


def is_full(folder: str | Path) -> bool:
    """Whether the folder's disk has no space or no inodes left for this user; False if it cannot
    be examined. Blocks while a network disk does not answer."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    blocks = disk.f_bavail
    if os.geteuid() == 0:
        # Root may use the blocks that ext4 reserves, but for those that are the file system's own:
        # 2 % of all, 4096 at most (ext4_calculate_resv_clusters; some are not in `f_blocks`).
        reserved = disk.f_bfree - disk.f_bavail
        blocks += reserved - min(reserved, disk.f_blocks // 40, 4096)
    # A file system without a limit on inodes has none in total.
    return blocks * disk.f_frsize < _LEAST or (disk.f_files > 0 and disk.f_ffree == 0)


def release_if_full(home: str | Path) -> None:
    """Give the space of the home's reserve to whoever writes next, if its disk is full. For when
    the processes that filled it have ended: they would take that, too."""
    if is_full(home):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(home, RESERVE))


def free_start(file: int, end: int) -> None:
    """Free the space of an open file before ``end``; its size stays, and who reads it finds a hole.
    Has no effect where the system or the file system cannot."""
    import ctypes  # lazy: rare

    if (free := getattr(ctypes.CDLL(None), "fallocate", None)) is not None:
        free(file, _PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(end - end % _ALIGNED))


def after_hole(file: int, offset: int) -> int:
    """Where an open file goes on: at ``offset``, or behind a hole of a megabyte or more, which may
    have any size and costs who makes it nothing. Smaller ones are read as the zeros they are."""
    try:
        data = os.lseek(file, offset, os.SEEK_DATA)
    except OSError as error:
        size = os.fstat(file).st_size
        data = size if error.errno == errno.ENXIO else offset  # nothing but a hole; it cannot tell
    return data if data - offset >= LARGE_HOLE else offset


def is_mostly_hole(file: int) -> bool:
    """Whether a copy would write or read gigabytes that an open file has no data for."""
    size = os.fstat(file).st_size
    return size - data_size(file, most=size - _HUGE_HOLE) > max(_HUGE_HOLE, size // 2)


def data_size(file: int, most: float = math.inf) -> int:
    """Bytes of an open file that are no holes; at least ``most`` if there are as many."""
    size, total, at = os.fstat(file).st_size, 0, 0
    while total < most:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
            at = os.lseek(file, start, os.SEEK_HOLE)
        except OSError as error:
            return total if error.errno == errno.ENXIO else size  # the end; it cannot tell
        total += at - start
    return total


def is_hole(piece: bytes | memoryview) -> bool:
    """Whether a piece of a file needs no disk space: it is all zeros."""
    return len(piece) >= _HOLE and not piece[0] and piece == bytes(len(piece))
