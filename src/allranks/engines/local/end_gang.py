"""Kill every process of a gang, wherever it is in the process tree.

A rank may start children in other sessions, and its agent and keeper may be killed at the same
time. Orphans then belong to init, and only their environment identifies them. An agent forked by
the fork server shows its environment; it is identified by the gang's lock file it holds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from allranks.engines.base import MARKER
from allranks.settings import FORK_SERVER


def marked(mark: str, folder: Path) -> list[int]:
    """Return the living processes that carry ``mark`` or hold a lock in ``folder``."""
    entry, forked = f"{MARKER}={mark}".encode(), f"{FORK_SERVER}=1".encode()
    pids = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        # OSError: it has ended, or belongs to another user. Zombies have no environment.
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            environ = file.read().split(b"\0")
            if entry in environ or (forked in environ and _holds(name, folder)):
                pids.append(int(name))
    return pids


def end_gang(mark: str, folder: Path, seconds: float = 5.0) -> None:
    """Send SIGKILL until no process is left, because one may fork during the search."""
    until = time.monotonic() + seconds
    while (pids := marked(mark, folder)) and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _holds(pid: str, folder: Path) -> bool:
    prefix = f"{os.path.realpath(folder)}/"
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(prefix):
                return True
    return False
