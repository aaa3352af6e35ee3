"""End every process that carries a gang's marker, wherever it moved to in the process tree.

A rank may put children into sessions of their own, and both its agent and the agent's keeper may
be killed at once: what is left then belongs to init, and only its environment tells whose it was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from allranks.engines.base import MARKER


def marked(key: str) -> list[int]:
    """The living processes that carry the marker of that gang. Zombies have no environment."""
    entry = f"{MARKER}={key}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            # Ended meanwhile, or another user's: not ours to end.
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if entry in file.read().split(b"\0"):
                    found.append(int(name))
    return found


def sweep(key: str, seconds: float = 5.0) -> None:
    """SIGKILL them until none is left: one may have forked while we looked."""
    until = time.monotonic() + seconds
    while (pids := marked(key)) and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
