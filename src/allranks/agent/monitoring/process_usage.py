"""Read the resource usage of a node, a job and its ranks from /proc: totals since boot, and levels.

It does not use psutil, because an agent that is copied to nodes has only Python, and psutil takes
several times as long.
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
    """The node. ``at`` is in monotonic time; ``busy`` and ``total`` are seconds of all CPUs; memory
    is in bytes, within the limit of our cgroup; the rest is in bytes since boot."""

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
    """A rank and all processes below it: CPU seconds, and bytes of memory. Shared memory counts
    once for each process. So many of them are ``stopped`` by a signal, or wait for a disk now."""

    busy: float
    memory: int
    stopped: int = 0
    blocked: int = 0


class Job(NamedTuple):
    """All processes of the job on this node: as for a rank, and bytes read from and written to
    disk."""

    busy: float = 0.0
    memory: int = 0
    disk_read: int = 0
    disk_write: int = 0


def node() -> Node:
    memory, memory_total = _memory()
    return Node(time.monotonic(), *_cpu(), memory, memory_total, *_disks(), *_network())


def between(before: Node, now: Node) -> dict[str, float]:
    """Return the usage between two samples: percent, bytes, bytes per second."""
    seconds = max(now.at - before.at, 1e-3)
    total = now.total - before.total
    usage = {"cpu": 100 * (now.busy - before.busy) / total if total > 0 else 0.0}
    usage |= {"memory": float(now.memory), "memory_total": float(now.memory_total)}
    for name in ("disk_read", "disk_write", "net_in", "net_out"):
        # The sum decreases when a disk or an interface is removed.
        usage[name] = max(0, getattr(now, name) - getattr(before, name)) / seconds
    return usage


def of_processes(pids: Iterable[int]) -> dict[int, Rank]:
    """Return the usage of each process that exists, with that of its ended children."""
    used = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            busy = sum(map(int, fields[11:15])) / _TICKS
            state = fields[0]
            used[pid] = Rank(busy, int(fields[21]) * _PAGE, state in b"Tt", state == b"D")
    return used


def total(pids: Iterable[int], used: Mapping[int, Rank]) -> Rank:
    """Return the sum over these processes."""
    several = [used[pid] for pid in pids if pid in used]
    return Rank(*map(sum, zip(*several, strict=True))) if several else Rank(0.0, 0)


def moved(pids: Iterable[int]) -> tuple[int, int]:
    """Return the bytes they read from and wrote to disk, with their ended children; processes of
    other users are not counted."""
    read = written = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/io", "rb") as file:
            counters = dict(line.split(b": ") for line in file.read().splitlines())
            read += int(counters[b"read_bytes"])
            written += int(counters[b"write_bytes"])
    return read, written


def held(pids: Iterable[int]) -> int:
    """Return the bytes of memory they occupy: shared memory counts once, mapped files do not. Takes
    milliseconds per GiB, too long for every sample."""
    kinds = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
    size = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                rows = [line.split() for line in file]
            size += sum(int(row[1]) for row in rows if row[0] in kinds) * 1024
    return size


def _cpu() -> tuple[float, float]:
    with open("/proc/stat", "rb") as file:
        ticks = [int(text) for text in file.readline().split()[1:9]]
    # user nice system idle iowait irq softirq steal; iowait counts as idle.
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / _TICKS, sum(ticks) / _TICKS


def _memory() -> tuple[int, int]:
    """Bytes used and in total: of the machine, or of our cgroup if its limit is lower."""
    fields = {}
    with open("/proc/meminfo", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b":")
            fields[name] = int(rest.split()[0]) * 1024
            if name == b"MemAvailable":
                break
    total = fields[b"MemTotal"]
    used = total - fields.get(b"MemAvailable", fields.get(b"MemFree", 0))
    limited = _limited(total)
    return (used, total) if limited is None else limited


def _limited(total: int) -> tuple[int, int] | None:
    """Bytes used, without caches, and the limit, of the nearest enclosing cgroup with a limit."""
    for folder, limit, usage, cached in _groups():
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text())
            if most < total:
                lines = (folder / "memory.stat").read_text().splitlines()
                stat = dict(line.split() for line in lines)
                return int((folder / usage).read_text()) - int(stat.get(cached, 0)), most
    return None


def _groups() -> Iterable[tuple[Path, str, str, str]]:
    """Our cgroup and those that enclose it, of either version, with the names of their files."""
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
            own = Path(top + path)
            for folder in (own, *own.parents):
                if str(folder).startswith(top):
                    yield folder, *names


def _disks() -> tuple[int, int]:
    """Bytes read from and written to disks, without their partitions and stacked devices."""
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
    """Bytes received and sent, without the loopback and without bridges and their ports."""
    received = sent = 0
    with contextlib.suppress(OSError), open("/proc/net/dev") as file:
        for line in file:
            name, colon, rest = line.partition(":")
            name = name.strip()
            if not colon or name == "lo" or _of_bridge(name):
                continue
            fields = rest.split()
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def _of_bridge(name: str) -> bool:
    folder = f"/sys/class/net/{name}"
    return os.path.exists(f"{folder}/brport") or os.path.exists(f"{folder}/bridge")
