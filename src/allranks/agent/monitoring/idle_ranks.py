"""Measure how long each rank of a node has printed nothing, computed nothing and moved no data.

Sampled with the monitor, once a second. Only ranks that are idle for half the hang timeout are
reported; the server, which knows all nodes, decides whether that is a hang.
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

# What an idle process may use, for heartbeats and watchdogs of libraries, which come in bursts: a
# share of a CPU, and CPU seconds at once; bytes per second, and bytes at once.
CPU, CPU_BURST = 0.02, 0.25
DATA, DATA_BURST = 4096.0, 65536.0
# Seconds between two reports on idle ranks, and the maximum as a share of the hang timeout: between
# reports the server extrapolates, and a rank that computes again must not seem idle.
AGAIN, _AGAIN = 4.0, 1 / 4
# Seconds between two searches for processes in a container.
_INSIDE = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Bucket:
    """A leaky bucket: it empties at ``rate`` per second; more than ``burst`` in it is work."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._total: float | None = None
        self._level = 0.0

    def works(self, total: float, seconds: float) -> bool:
        """Whether usage is work. ``total`` is the usage since the start, ``seconds`` the time since
        the last call."""
        new = 0.0 if self._total is None else max(0.0, total - self._total)
        self._total = total
        self._level = max(0.0, self._level + new - self._rate * seconds)
        if self._level <= self._burst:
            return False
        self._level = 0.0
        return True


class _Rank:
    """The last activity of a rank, in times of the monotonic clock."""

    def __init__(self, now: float) -> None:
        self.size = -1
        self.printed = self.computed = self.moved = now
        self.cpus: dict[int, Bucket] = {}
        self.disk, self.net = (Bucket(DATA, DATA_BURST) for _ in range(2))
        self.carried = 0


class IdleRanks:
    """``logs`` are the logs of the ranks, ``roots`` returns their first processes, ``report`` gets
    each report for the server. ``busy`` is the share of a CPU that each process uses or waits for.
    """

    def __init__(
        self,
        node: int,
        timeout: float,
        logs: Mapping[int, Path],
        roots: Callable[[], Mapping[int, int]],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        now = time.monotonic()
        self.busy: dict[int, float] = {}
        self._half, self._logs, self._roots, self._report = timeout / 2, logs, roots, report
        self._ranks = {rank: _Rank(now) for rank in logs}
        self._family, self._at, self._gpu_at = RankProcesses(), now, -math.inf
        self._cpus: dict[int, float] = {}
        self._carried: dict[int, int] = {}
        self._node, self._inside_at = node, -math.inf
        self._roots_inside: Mapping[int, int] = {}
        self._reported: tuple[Any, ...] = ([], [], False)
        self._reported_at = 0.0

    def look(self, sample: Mapping[Any, float]) -> None:
        """Sample all ranks, once a second. ``sample`` is the monitor's, with the load of the
        GPUs."""
        now = time.monotonic()
        seconds, self._at = now - self._at, now
        if any(name == "gpu_load" and load > 0 for (name, *_), load in sample.items()):
            self._gpu_at = now
        self._outputs(now)
        # If a rank seems idle, list processes more often: it may have started a compiler.
        idle = any(now - state.computed > self._half / 2 for state in self._ranks.values())
        age = min(2.0, self._half / 2) if idle else math.inf
        members = self._family.members(self._roots() or self._inside(now), age)
        cpus: dict[int, float] = {}
        for rank, pids in members.items():
            if rank in self._ranks:
                self._computing(self._ranks[rank], pids, cpus, seconds, now)
                self._disks(self._ranks[rank], pids, seconds, now)
        for rank in self._ranks.keys() - members.keys():
            # It has ended, or its processes are not visible here.
            self._ranks[rank].computed = now
        self.busy.clear()
        self.busy |= {
            pid: max(0.0, used - self._cpus.get(pid, used)) / max(seconds, 1e-3)
            for pid, used in cpus.items()
        }
        self._cpus = cpus
        self._connections(members, seconds, now)
        self._report_quiet(now)

    def _inside(self, now: float) -> Mapping[int, int]:
        """The first processes of ranks in a container."""
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
        """Update the CPU time of its processes, with that of ended children. A new process counts
        as work, because the rank has started it."""
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
                counters = dict(line.split(b": ") for line in file.read().splitlines())
                # Data overwritten in the cache before it reached the disk counts in wchar only.
                keys = (b"wchar", b"read_bytes", b"write_bytes")
                total += sum(int(counters[key]) for key in keys)
        if rank.disk.works(total, seconds):
            rank.moved = now

    def _connections(self, members: Mapping[int, list[int]], seconds: float, now: float) -> None:
        """Sample the connections of ranks that do nothing else: reading descriptors is
        expensive."""
        idle = [
            rank
            for rank, state in self._ranks.items()
            if rank in members and now - max(state.printed, state.computed) > self._half / 2
        ]
        if not idle:
            self._carried = {}
            return
        carried = tcp_counters.carried()
        for rank in idle:
            state = self._ranks[rank]
            new = sum(
                max(0, carried[inode] - self._carried.get(inode, carried[inode]))
                for inode in tcp_counters.of_processes(members[rank])
                if inode in carried
            )
            state.carried += new
            if state.net.works(state.carried, seconds):
                state.moved = now
        self._carried = carried

    def _report_quiet(self, now: float) -> None:
        quiet = {
            rank: state
            for rank, state in self._ranks.items()
            if now - max(state.printed, state.moved) >= self._half
        }
        idle = [rank for rank, state in quiet.items() if now - state.computed >= self._half]
        kinds = (list(quiet), idle, bool(quiet) and now - self._gpu_at >= self._half)
        if kinds == self._reported and (
            not quiet or now - self._reported_at < min(AGAIN, 2 * self._half * _AGAIN)
        ):
            return
        self._reported, self._reported_at = kinds, now
        gpu = now - self._gpu_at if self._gpu_at > 0 else None
        self._report(
            {
                str(rank): [now - state.printed, now - state.computed, now - state.moved, gpu]
                for rank, state in quiet.items()
            }
        )


def _waited(pid: int) -> float:
    """Seconds that its first thread waited for a CPU: on a crowded node, a rank at work gets little
    CPU time."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0
