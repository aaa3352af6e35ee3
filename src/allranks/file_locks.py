"""Locks on files: held as long as any process has the file open that took them, and no longer.

The kernel lets go of one when its last holder dies, however it dies. That is what they are for
here: not to wait for one another, but to know who lives.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

# Looking whether a lock is held holds it for a moment: one who wants it looks again for so long.
_MOMENT = 0.5


def take(path: Path) -> int | None:
    """Lock the file, made if need be; its descriptor, or None when another holds it.

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


def is_held(path: Path) -> bool:
    """Whether somebody holds it; not if there is no such file."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        # Shared: two who look at the same moment do not take each other for the holder.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)
