"""The processes of a home that have imported modules for the ranks of later jobs.

Agents start and use them (`agent/launch/warm_ranks.py`); each holds a lock file that has its
process id. Between jobs they hold memory, which counts as used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from allranks import file_locks
from allranks.engines.local.capacity import Capacity
from allranks.settings import LAST_WARM


def pids(folder: Path) -> list[int]:
    """Return the process ids of the servers in ``folder``."""
    holders = map(file_locks.holder, folder.glob("*.lock"))
    return [pid for pid in holders if pid is not None]


def memory(folder: Path) -> int:
    """Return how many bytes they hold."""
    held = 0
    for pid in pids(folder):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
            held += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return held


def end(folder: Path) -> None:
    """Kill them. Ranks that they forked keep running."""
    for pid in pids(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def make_room(folder: Path, free: Capacity, needs: Sequence[Capacity]) -> None:
    """End them if only the memory that they hold keeps one of ``needs`` from fitting into
    ``free``."""
    if any(need.memory > free.memory for need in needs):
        all_free = free.plus(Capacity(0, 0, 0.0, memory(folder), 0))
        if any(free.missing(need) and not all_free.missing(need) for need in needs):
            end(folder)


def remove(folder: Path) -> None:
    """Kill them, and remove their folder; if the next server of this home is to import the same
    again, without what tells it what that was."""
    end(folder)
    if not (folder / LAST_WARM).exists():
        shutil.rmtree(folder, ignore_errors=True)
    for path in folder.glob("*"):
        if path.suffix != ".json":
            path.unlink(missing_ok=True)
