"""What a job uses on a node, its ranks and the node itself, looked at once a second by a thread of
the agent.

What is kept gets coarser as the attempt gets older: as many seconds in one point as a 300th of its
age, thirty at most; loads and rates are their mean, memory the most there was. So a day leaves some
four thousand points of each series instead of ninety thousand.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from allranks.agent.monitoring import process_usage
from allranks.agent.monitoring.gpu_usage import Gpus
from allranks.agent.processes.rank_processes import Members, RankProcesses

# Seconds between two looks; the part of an attempt's age that one point stands for, and the most.
LOOK = 1.0
_PART, _MOST = 1 / 300, 30.0
# An attempt that is shorter leaves nothing.
_LEAST = 0.2
_LEVELS = (
    "memory",
    "memory_total",
    "node_memory",
    "node_memory_total",
    "gpu_memory",
    "gpu_memory_total",
)
# Of these nobody knows which part is the job's.
_SHARED = ("net_in", "net_out")

_NEW = process_usage.Rank(0.0, 0)

# A series and its value: (name, GPU or None, rank or None).
Sample = dict[tuple[str, int | None, int | None], float]


class Monitor:
    """Looks from its making until stopped; ``roots`` tells each rank's first process. Points go
    ``into`` a file, a line for each time: ``{"at": …, "points": [[name, gpu, rank, value], …]}``.
    ``also`` is shown what each look has seen, ``held`` the processes and the bytes of memory that
    they hold; ``most`` is how many they may.
    """

    def __init__(
        self,
        roots: Callable[[], Mapping[int, int]],
        into: Path,
        also: Callable[[Sample], None] = lambda sample: None,
        held: Callable[[Members, Mapping[int, process_usage.Rank], int], None] = lambda *held: None,
        most: int | None = None,
    ) -> None:
        self._roots, self.into, self._also = roots, into, also
        self._held, self._most = held, most
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look a last time and write what there is."""
        self._over.set()
        # A GPU that has fallen off its bus may keep its driver's answer for good.
        self._thread.join(timeout=2 * LOOK)

    def _watch(self) -> None:
        began, due = time.monotonic(), 0.0
        eyes, kept = _Eyes(self._roots, self._most), Kept()
        while not self._over.wait(LOOK):
            seen = eyes.look()
            self._also(seen)
            self._held(eyes.members, eyes.ranks, eyes.job.memory)
            kept.add(seen)
            if (age := time.monotonic() - began) >= due:
                self._write(kept.take())
                due = age + min(_MOST, age * _PART)
        if time.monotonic() - began > _LEAST:
            kept.add(eyes.look())
        self._write(kept.take())

    def _write(self, points: Sample) -> None:
        rows = [[*series, round(value, 3)] for series, value in points.items()]
        # A full disk costs the series some points, and nobody anything else.
        if rows:
            line = json.dumps({"at": time.time(), "points": rows}).encode() + b"\n"
            with contextlib.suppress(OSError), self.into.open("ab", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if file.write(line) != len(line):
                    file.truncate(size)


class _Eyes:
    def __init__(self, roots: Callable[[], Mapping[int, int]], most: int | None) -> None:
        self._roots, self._most, self._family, self._gpus = roots, most, RankProcesses(), Gpus()
        self._node = process_usage.node()
        self._at = time.monotonic()
        self.members = Members({}, [])
        self.ranks: dict[int, process_usage.Rank] = {}
        self.job = process_usage.Job()

    def look(self) -> Sample:
        """What was used since the last look."""
        node, before = process_usage.node(), self._node
        self._node = node
        found: Sample = {}
        for name, value in process_usage.between(before, node).items():
            found[name if name in _SHARED else f"node_{name}", None, None] = value
        for gpu, told in self._gpus.look().items():
            found |= {(name, gpu, None): value for name, value in told.items()}
        total = node.memory_total if self._most is None else min(self._most, node.memory_total)
        found["memory_total", None, None] = float(total)
        return found | self._of_processes(node.total - before.total)

    def _of_processes(self, seconds: float) -> Sample:
        """Of the job and its ranks; ``seconds`` are those of all CPUs since the last look."""
        found: Sample = {}
        self.members, now = self._family.look(self._roots()), time.monotonic()
        passed, self._at = max(now - self._at, 1e-3), now
        used = process_usage.of_processes(self.members.job)
        if not used:
            return {}  # all have ended: what they used last is what is to be known
        ranks = {rank: process_usage.total(pids, used) for rank, pids in self.members.ranks.items()}
        for rank, each in ranks.items():
            found["memory", None, rank] = float(each.memory)
            # Less than before: one of its processes has ended, and was not waited for.
            busy = max(0.0, each.busy - self.ranks.get(rank, _NEW).busy)
            found["cpu", None, rank] = 100 * busy / passed
        job, before = (
            process_usage.Job(*process_usage.total(used, used), *process_usage.moved(used)),
            self.job,
        )
        busy = max(0.0, job.busy - before.busy)
        found["cpu", None, None] = min(100.0, 100 * busy / seconds) if seconds > 0 else 0.0
        found["memory", None, None] = float(job.memory)
        found["disk_read", None, None] = max(0, job.disk_read - before.disk_read) / passed
        found["disk_write", None, None] = max(0, job.disk_write - before.disk_write) / passed
        self.ranks, self.job = ranks, job
        return found


class Kept:
    """Samples, until one is made of them."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def take(self) -> Sample:
        """One sample that stands for all: the most of what is a level, the mean of the rest."""
        found: dict[Any, list[float]] = {}
        for sample in self._samples:
            for series, value in sample.items():
                found.setdefault(series, []).append(value)
        self._samples = []
        return {
            series: max(values) if series[0] in _LEVELS else sum(values) / len(values)
            for series, values in found.items()
        }
