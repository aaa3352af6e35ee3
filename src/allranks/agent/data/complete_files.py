"""Whether a file is whole: nobody has it open for writing, and it is what it was."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import NamedTuple


class Look(NamedTuple):
    """How a file looked: what differs once it was written to."""

    size: int
    mtime: int
    ctime: int
    inode: int


def look_of(seen: os.stat_result) -> Look:
    return Look(seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)


def is_written(file: int) -> bool:
    """Whether anybody has it open for writing: the kernel gives no lease on it then. Who opens it
    while we hold one has us sent SIGIO."""
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # Some disks give none at all; then only what is unchanged for a while is whole.
        return error.errno == errno.EAGAIN
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
