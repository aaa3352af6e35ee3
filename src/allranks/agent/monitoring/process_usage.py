"""What a node, a job and its ranks use, read from /proc: numbers since boot, and levels.

Read here and not by psutil: an agent has nothing but Python where it is shipped to, and a look
through psutil costs several times as much.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
# A sector of /proc/diskstats, whatever the disk's own are.
_SECTOR = 512


class Node(NamedTuple):
    """Of the node. ``at`` is of a clock that is never set; ``busy`` and ``total`` in seconds of all
    its CPUs; memory in bytes, what the processes here may have of it; the rest in bytes since
    boot."""

    at: float
    busy: float
    total: float
    memory: int
    memory_total: int
    disk_read: int
    disk_write: int
    net_in: int
    net_out: int


class Rank(NamedTuple):
    """Of a rank and all below it: seconds on CPUs, and bytes of memory. What processes of it share
    counts for each."""

    busy: float
    memory: int


class Job(NamedTuple):
    """Of all processes of the job on this node: as a rank's, and bytes that went to and from
    disks."""

    busy: float = 0.0
    memory: int = 0
    disk_read: int = 0
    disk_write: int = 0


def node() -> Node:
    memory, memory_total = _memory()
    return Node(time.monotonic(), *_cpu(), memory, memory_total, *_disks(), *_network())


def between(before: Node, now: Node) -> dict[str, float]:
    """What stands in the record for the time from one look to the next: percent, bytes, bytes a
    second."""
    seconds = max(now.at - before.at, 1e-3)
    total = now.total - before.total
    found = {"cpu": 100 * (now.busy - before.busy) / total if total > 0 else 0.0}
    found |= {"memory": float(now.memory), "memory_total": float(now.memory_total)}
    for name in ("disk_read", "disk_write", "net_in", "net_out"):
        # A disk or an interface that goes away takes its count along.
        found[name] = max(0, getattr(now, name) - getattr(before, name)) / seconds
    return found


def of_processes(pids: Iterable[int]) -> dict[int, Rank]:
    """What each of them uses, with its children that have ended; without those that are gone."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            busy = sum(map(int, fields[11:15])) / _TICKS
            found[pid] = Rank(busy, int(fields[21]) * _PAGE)
    return found


def total(pids: Iterable[int], used: Mapping[int, Rank]) -> Rank:
    """All of them together."""
    several = [used[pid] for pid in pids if pid in used]
    return Rank(sum(each.busy for each in several), sum(each.memory for each in several))


def moved(pids: Iterable[int]) -> tuple[int, int]:
    """Bytes that they have read from disks and written to them, with their children that have
    ended; what another user's process moved is not known."""
    read = written = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/io", "rb") as file:
            told = dict(line.split(b": ") for line in file.read().splitlines())
            read += int(told[b"read_bytes"])
            written += int(told[b"write_bytes"])
    return read, written


def held(pids: Iterable[int]) -> int:
    """Bytes of memory that would be free without them: what they share counts once, files that are
    mapped do not count. Takes milliseconds a GiB: not for every look."""
    kinds = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                rows = [line.split() for line in file]
            found += sum(int(row[1]) for row in rows if row[0] in kinds) * 1024
    return found


def _cpu() -> tuple[float, float]:
    with open("/proc/stat", "rb") as file:
        ticks = [int(text) for text in file.readline().split()[1:9]]
    # user nice system idle iowait irq softirq steal: waiting for a disk is no work.
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / _TICKS, sum(ticks) / _TICKS


def _memory() -> tuple[int, int]:
    """Used, and all there is: of the machine, or of our control group where that has less."""
    found = {}
    with open("/proc/meminfo", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b":")
            found[name] = int(rest.split()[0]) * 1024
            if name == b"MemAvailable":
                break
    total = found[b"MemTotal"]
    used = total - found.get(b"MemAvailable", found.get(b"MemFree", 0))
    limited = _limited(total)
    return (used, total) if limited is None else limited


def _limited(total: int) -> tuple[int, int] | None:
    """Of the nearest control group around us that has a limit: used without what is only cached,
    and the limit."""
    for folder, limit, usage, cached in _groups():
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text())
            if most < total:
                lines = (folder / "memory.stat").read_text().splitlines()
                stat = dict(line.split() for line in lines)
                return int((folder / usage).read_text()) - int(stat.get(cached, 0)), most
    return None


def _groups() -> Iterable[tuple[Path, str, str, str]]:
    """Our control group and those around it, of either version, and what its files are called."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, kinds, path = line.split(":", 2)
            if number == "0" and not kinds:
                top, names = "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
            elif "memory" in kinds.split(","):
                top = "/sys/fs/cgroup/memory"
                names = (
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file",
                )
            else:
                continue
            here = Path(top + path)
            for folder in (here, *here.parents):
                if str(folder).startswith(top):
                    yield folder, *names


def _disks() -> tuple[int, int]:
    """Of whole disks, not of their partitions and what is stacked on them."""
    read = written = 0
    with contextlib.suppress(OSError):
        whole = {name for name in os.listdir("/sys/block") if not name.startswith(_STACKED)}
        with open("/proc/diskstats") as file:
            for line in file:
                fields = line.split()
                if fields[2] in whole:
                    read += int(fields[5]) * _SECTOR
                    written += int(fields[9]) * _SECTOR
    return read, written


_STACKED = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")


def _network() -> tuple[int, int]:
    """Of interfaces that lead out: not the loopback, and not both sides of a bridge."""
    come = gone = 0
    with contextlib.suppress(OSError), open("/proc/net/dev") as file:
        for line in file:
            name, colon, rest = line.partition(":")
            name = name.strip()
            if not colon or name == "lo" or _of_bridge(name):
                continue
            fields = rest.split()
            come += int(fields[0])
            gone += int(fields[8])
    return come, gone


def _of_bridge(name: str) -> bool:
    here = f"/sys/class/net/{name}"
    return os.path.exists(f"{here}/brport") or os.path.exists(f"{here}/bridge")
