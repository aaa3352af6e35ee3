"""End every process of a gang, wherever it moved to in the process tree.

A rank may put children into sessions of their own, and both its agent and the agent's keeper may
be killed at once: what is left then belongs to init, and only its environment tells whose it was.
Agents forked by the nursery show the nursery's environment: them the gang's lock gives away.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from allranks.engines.base import MARKER
from allranks.engines.local.fork_server import NURSED


def marked(mark: str, folder: Path) -> list[int]:
    """The living processes that carry ``mark``, or hold a lock in ``folder``."""
    entry, nursed = f"{MARKER}={mark}".encode(), f"{NURSED}=1".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        # Ended meanwhile, or another user's: not ours to end. Zombies have no environment.
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            environ = file.read().split(b"\0")
            if entry in environ or (nursed in environ and _holds(name, folder)):
                found.append(int(name))
    return found


def end_gang(mark: str, folder: Path, seconds: float = 5.0) -> None:
    """SIGKILL them until none is left: one may have forked while we looked."""
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
