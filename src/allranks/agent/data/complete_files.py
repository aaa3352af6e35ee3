"""Detect complete files: nobody has them open for writing, and their metadata is unchanged."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import NamedTuple


class Fingerprint(NamedTuple):
    """File metadata that changes when the file is written to."""

    size: int
    mtime: int
    ctime: int
    inode: int


def fingerprint(stat: os.stat_result) -> Fingerprint:
    return Fingerprint(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def is_open_for_writing(file: int) -> bool:
    """Whether any process has the file open for writing: the kernel then refuses a read lease.
    Opening the file for writing while we hold the lease sends this process SIGIO."""
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # Some file systems have no leases; callers then rely on unchanged metadata alone.
        return error.errno == errno.EAGAIN
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
