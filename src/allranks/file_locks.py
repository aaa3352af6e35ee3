"""File locks, held as long as a process that took them has the file open.

The kernel releases a lock when its last holder dies. They are used to detect whether a process is
alive, not to wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

# Checking a lock holds it for a moment, so taking it retries for this long.
_MOMENT = 0.5


def take(path: Path) -> int | None:
    """Lock the file, creating it if needed. Returns its descriptor, or None if it is locked by
    another process.

    Children that inherit the descriptor hold the lock too. Raises OSError.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + _MOMENT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(file)
                return None
            time.sleep(0.01)


def holder(path: Path) -> int | None:
    """The process id that the lock's holder has written into the file; None if it is not held, or
    not written yet."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(path.read_text())
        return pid if has_open(pid, path) else None
    return None


def has_open(pid: object, path: Path) -> bool:
    """Whether a process of this machine has the lock's file open. A number that a file says may be
    another host's process, one that came later, or -1: a signal to all."""
    with contextlib.suppress(OSError):
        if type(pid) is int and pid > 0 and is_held(path):
            lock, files = os.stat(path), f"/proc/{pid}/fd"
            for number in os.listdir(files):
                with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                    if os.path.samestat(os.stat(f"{files}/{number}"), lock):
                        return True
    return False


def is_held(path: Path) -> bool:
    """Whether the lock is held. False if the file does not exist."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        # Shared, so that two simultaneous checks do not see each other as the holder.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)
