"""What only the node knows of the moment at which a rank fails: whether the kernel was killing
processes for want of memory, what room was left where, which Python ran. Facts alone; ``plan``
decides what they mean.

The kernel's counter counts for the whole machine, or a cgroup that many ranks and jobs share. So it
is compared with what it was seconds before, not with the attempt's beginning.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

# Seconds between two looks at the counter, and what is too near to an end to be before it.
_EVERY, _NEAR = 5.0, 1.0
_KILLED = re.compile(r"ut of memory: Killed process \d+")
_PROC = Path("/proc")
_MOUNT = Path("/sys/fs/cgroup")


class _Look(NamedTuple):
    at: float
    kills: int


class FailureContext:
    """Looks from its making on, whenever it is told to."""

    def __init__(self) -> None:
        self._counter = counter()
        first = _Look(time.monotonic(), self._kills())
        self._before, self._last = first, first

    def look(self) -> None:
        """Remember what the counter is now, if the last time is some seconds ago."""
        now = time.monotonic()
        if now >= self._last.at + _EVERY:
            self._before, self._last = self._last, _Look(now, self._kills())

    def now(self, folder: Path, path: str) -> dict[str, Any]:
        """The facts, as a rank that works in ``folder`` and finds its programs on ``path`` has just
        failed."""
        now = time.monotonic()
        before = self._before if now < self._last.at + _NEAR else self._last
        kills = self._kills() - before.kills
        found: dict[str, Any] = {"oom_kills": max(0, kills)}
        if kills > 0:
            found["oom_line"] = _said_by_kernel(before.at)
        places = {"disk_free": folder, "tmp_free": Path("/tmp"), "shm_free": Path("/dev/shm")}
        for name, place in places.items():
            with contextlib.suppress(OSError):
                told = os.statvfs(place)
                found[name] = told.f_bavail * told.f_frsize
        if python := shutil.which("python", path=path):
            found["python"] = python
        return found

    def _kills(self) -> int:
        return count(self._counter)


def counter(proc: Path = _PROC, mount: Path = _MOUNT) -> Path:
    """The file that counts kills for want of memory: the machine's, which a process in any cgroup
    of it counts in; where there is none, that of our own cgroup, version 2 or 1, as it is seen
    from the host or from inside a container."""
    found = [proc / "vmstat"]
    with contextlib.suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            own = path.lstrip("/")
            if not kinds:
                found += [mount / own / "memory.events", mount / "memory.events"]
            elif "memory" in kinds.split(","):
                root = mount / "memory"
                found += [root / own / "memory.oom_control", root / "memory.oom_control"]
    return next((each for each in found if count(each, -1) >= 0), found[0])


def count(file: Path, otherwise: int = 0) -> int:
    """What the file says of `oom_kill`."""
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return otherwise


def _said_by_kernel(since: float) -> str:
    """The last line of the kernel's log on such a kill since then, where it may be read."""
    said = ""
    with contextlib.suppress(OSError):
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while True:
                try:
                    record = os.read(log, 8192).decode(errors="replace")
                except BrokenPipeError:  # older records were overwritten meanwhile
                    continue
                head, _, text = record.partition(";")
                at = int(head.split(",")[2]) / 1e6
                # The kernel's clock and ours are not quite the same one.
                if at > since - 2 and _KILLED.search(text):
                    said = text.partition("\n")[0]
        except (BlockingIOError, ValueError, IndexError):
            pass
        finally:
            os.close(log)
    return said
