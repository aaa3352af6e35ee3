"""Facts about a node at the moment a rank fails: OOM kills, free disk space, the Python in use.
``core`` decides what they mean.

The kernel's counter of OOM kills covers the whole machine, or a cgroup that many ranks and jobs
share. So it is compared with its value some seconds before, not at the attempt's start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

# Seconds between two samples of the counter, and the minimum age of the sample to compare with.
_EVERY, _NEAR = 5.0, 1.0
_COUNT = re.compile(rb"^oom_kill (\d+)$", re.M)
_KILLED = re.compile(r"ut of memory: Killed process \d+")
_PROC = Path("/proc")
_MOUNT = Path("/sys/fs/cgroup")


class _Sample(NamedTuple):
    at: float
    kills: int


class FailureContext:
    """Samples the counter in ``look`` and collects the facts in ``now``."""

    def __init__(self) -> None:
        self._counter = counter()
        first = _Sample(time.monotonic(), count(self._counter))
        self._before, self._last = first, first

    def look(self) -> None:
        """Sample the counter, unless the last sample is recent."""
        now = time.monotonic()
        if now >= self._last.at + _EVERY:
            self._before, self._last = self._last, _Sample(now, count(self._counter))

    def now(self, folder: Path, path: str) -> dict[str, Any]:
        """Return the facts for a rank with working folder ``folder`` and PATH ``path`` that has
        just failed."""
        now = time.monotonic()
        before = self._before if now < self._last.at + _NEAR else self._last
        kills = count(self._counter) - before.kills
        facts: dict[str, Any] = {"oom_kills": max(0, kills)}
        if kills > 0:
            facts["oom_line"] = _kernel_message(before.at)
        folders = {"disk_free": folder, "tmp_free": Path("/tmp"), "shm_free": Path("/dev/shm")}
        for name, place in folders.items():
            with contextlib.suppress(OSError):
                disk = os.statvfs(place)
                facts[name] = disk.f_bavail * disk.f_frsize
        if python := shutil.which("python", path=path):
            facts["python"] = python
        return facts


def counter(proc: Path = _PROC, mount: Path = _MOUNT) -> Path:
    """Return the file that counts OOM kills: the machine's, or else that of our own cgroup, of
    version 2 or 1, as seen from the host or from inside a container."""
    files = [proc / "vmstat"]
    with contextlib.suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            own = path.lstrip("/")
            if not kinds:
                files += [mount / own / "memory.events", mount / "memory.events"]
            elif "memory" in kinds.split(","):
                root = mount / "memory"
                files += [root / own / "memory.oom_control", root / "memory.oom_control"]
    return next((file for file in files if count(file, -1) >= 0), files[0])


def count(file: Path, default: int = 0) -> int:
    """Return the value of `oom_kill` in the file."""
    with contextlib.suppress(OSError):
        if found := _COUNT.search(file.read_bytes()):
            return int(found[1])
    return default


def _kernel_message(since: float) -> str:
    """The last message about an OOM kill since then in the kernel's log, if it is readable."""
    message = ""
    with contextlib.suppress(OSError):
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while True:
                try:
                    record = os.read(log, 8192).decode(errors="replace")
                except BrokenPipeError:  # the kernel has overwritten older records
                    continue
                head, _, text = record.partition(";")
                at = int(head.split(",")[2]) / 1e6
                # The kernel's clock differs slightly from ours.
                if at > since - 2 and _KILLED.search(text):
                    message = text.partition("\n")[0]
        except (BlockingIOError, ValueError, IndexError):
            pass
        finally:
            os.close(log)
    return message
