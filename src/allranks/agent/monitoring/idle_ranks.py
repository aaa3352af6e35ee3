"""For how long each rank of a node has printed nothing, computed nothing and moved no data.

Looked at with the monitor, once a second, and told to the server only of ranks that have been quiet
for half the hang timeout: whether that is a hang is for one place to decide, which knows all nodes.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from allranks.agent.monitoring import stacks, tcp_counters
from allranks.agent.processes.rank_processes import RankProcesses

# What a process may use without being at work: heartbeats and watchdogs of libraries, which come in
# bursts. A share of a CPU, and seconds of it that may come at once; bytes a second, and at once.
CPU, CPU_BURST = 0.02, 0.25
DATA, DATA_BURST = 4096.0, 65536.0
# Seconds between two words on ranks that go on being quiet, and the most of the hang timeout: who
# hears them counts on from there, and one that computes is not to seem idle meanwhile.
AGAIN, _AGAIN = 4.0, 1 / 4
# Seconds between two looks for what runs in a container.
_INSIDE = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Bucket:
    """Fills with what is used, empties at ``rate`` a second; more than ``burst`` in it is work."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._seen: float | None = None
        self._level = 0.0

    def works(self, total: float, seconds: float) -> bool:
        """Whether it does, by what it has used since it began, so long after the last look."""
        new = 0.0 if self._seen is None else max(0.0, total - self._seen)
        self._seen = total
        self._level = max(0.0, self._level + new - self._rate * seconds)
        if self._level <= self._burst:
            return False
        self._level = 0.0
        return True


class _Rank:
    """What is known of one; times are of the monotonic clock."""

    def __init__(self, now: float) -> None:
        self.size = -1
        self.printed = self.computed = self.moved = now
        self.cpus: dict[int, Bucket] = {}
        self.disk, self.net = (Bucket(DATA, DATA_BURST) for _ in range(2))
        self.carried = 0


class IdleRanks:
    """``logs`` are the outputs of the ranks, ``roots`` their first processes; ``tell`` is given
    what there is to tell the server. ``busy`` is the share of a CPU that every process uses, or
    waits for, just now."""

    def __init__(
        self,
        node: int,
        timeout: float,
        logs: Mapping[int, Path],
        roots: Callable[[], Mapping[int, int]],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        now = time.monotonic()
        self.busy: dict[int, float] = {}
        self._half, self._logs, self._roots, self._tell = timeout / 2, logs, roots, tell
        self._ranks = {rank: _Rank(now) for rank in logs}
        self._family, self._at, self._gpu_at = RankProcesses(), now, -math.inf
        self._cpus: dict[int, float] = {}
        self._carried: dict[int, int] = {}
        self._node, self._inside_at = node, -math.inf
        self._roots_inside: Mapping[int, int] = {}
        self._told: tuple[Any, ...] = ([], [], False)
        self._told_at = 0.0

    def look(self, sample: Mapping[Any, float]) -> None:
        """Once a second; ``sample`` is what the monitor has seen of the GPUs."""
        now = time.monotonic()
        seconds, self._at = now - self._at, now
        if any(name == "gpu_load" and load > 0 for (name, *_), load in sample.items()):
            self._gpu_at = now
        self._outputs(now)
        # A compiler that a rank has started is not to be missed for long.
        waits = any(now - each.computed > self._half / 2 for each in self._ranks.values())
        age = min(2.0, self._half / 2) if waits else math.inf
        members = self._family.members(self._roots() or self._inside(now), age)
        cpus: dict[int, float] = {}
        for rank, pids in members.items():
            if rank in self._ranks:
                self._computing(self._ranks[rank], pids, cpus, seconds, now)
                self._disks(self._ranks[rank], pids, seconds, now)
        for rank in self._ranks.keys() - members.keys():
            # It has ended, which others know, or nobody here sees what it does.
            self._ranks[rank].computed = now
        self.busy.clear()
        self.busy |= {
            pid: max(0.0, used - self._cpus.get(pid, used)) / max(seconds, 1e-3)
            for pid, used in cpus.items()
        }
        self._cpus = cpus
        self._connections(members, seconds, now)
        self._say(now)

    def _inside(self, now: float) -> Mapping[int, int]:
        """The first processes of ranks that run in a container."""
        if now - self._inside_at > _INSIDE:
            self._inside_at, self._roots_inside = now, stacks.inside(self._node)[1]
        return self._roots_inside

    def _outputs(self, now: float) -> None:
        for rank, path in self._logs.items():
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                if size != self._ranks[rank].size:
                    self._ranks[rank].size, self._ranks[rank].printed = size, now

    def _computing(
        self, rank: _Rank, pids: list[int], cpus: dict[int, float], seconds: float, now: float
    ) -> None:
        """What its processes compute, with what children did that have ended. A new one is work:
        somebody has started it."""
        for pid in pids:
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                cpus[pid] = sum(map(int, fields[11:15])) / _TICKS + _waited(pid)
                bucket = rank.cpus.get(pid)
                if bucket is None:
                    bucket = rank.cpus[pid] = Bucket(CPU, CPU_BURST)
                    rank.computed = now
                if bucket.works(cpus[pid], seconds):
                    rank.computed = now
        for pid in rank.cpus.keys() - cpus.keys():
            del rank.cpus[pid]

    def _disks(self, rank: _Rank, pids: list[int], seconds: float, now: float) -> None:
        total = 0
        for pid in pids:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/io", "rb") as file:
                told = dict(line.split(b": ") for line in file.read().splitlines())
                # What is written again before it was on the disk counts in the first alone.
                total += sum(int(told[key]) for key in (b"wchar", b"read_bytes", b"write_bytes"))
        if rank.disk.works(total, seconds):
            rank.moved = now

    def _connections(self, members: Mapping[int, list[int]], seconds: float, now: float) -> None:
        """Only where a rank does nothing else: looking through descriptors is not for nothing."""
        idle = [
            rank
            for rank, each in self._ranks.items()
            if rank in members and now - max(each.printed, each.computed) > self._half / 2
        ]
        if not idle:
            self._carried = {}
            return
        carried = tcp_counters.carried()
        for rank in idle:
            each = self._ranks[rank]
            mine = tcp_counters.of_processes(members[rank])
            new = sum(
                max(0, carried[inode] - self._carried.get(inode, carried[inode]))
                for inode in mine
                if inode in carried
            )
            each.carried += new
            if each.net.works(each.carried, seconds):
                each.moved = now
        self._carried = carried

    def _say(self, now: float) -> None:
        quiet = {
            rank: each
            for rank, each in self._ranks.items()
            if now - max(each.printed, each.moved) >= self._half
        }
        idle = [rank for rank, each in quiet.items() if now - each.computed >= self._half]
        kinds = (list(quiet), idle, bool(quiet) and now - self._gpu_at >= self._half)
        if kinds == self._told and (
            not quiet or now - self._told_at < min(AGAIN, 2 * self._half * _AGAIN)
        ):
            return
        self._told, self._told_at = kinds, now
        gpu = now - self._gpu_at if self._gpu_at > 0 else None
        self._tell(
            {
                str(rank): [now - each.printed, now - each.computed, now - each.moved, gpu]
                for rank, each in quiet.items()
            }
        )


def _waited(pid: int) -> float:
    """Seconds that its first thread could have computed and had to wait for a processor: where many
    share few, one that is at work gets little of them."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0
