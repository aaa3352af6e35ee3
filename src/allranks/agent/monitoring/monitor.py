"""Sample the resource usage of a job, its ranks and the node, once a second, in a thread.

Points get coarser as the attempt gets older: each covers a 300th of its age, at most thirty
seconds. Loads and rates are averaged; of memory the maximum is kept. So a day leaves some four
thousand points per series instead of ninety thousand.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from allranks import folder_trees
from allranks.agent.monitoring import process_usage
from allranks.agent.monitoring.gpu_usage import Gpus
from allranks.agent.processes.rank_processes import Members, RankProcesses

# Seconds between two samples; the share of an attempt's age that one point covers, and the maximum.
LOOK = 1.0
_PART, _MOST = 1 / 300, 30.0
# Shorter attempts, in seconds, leave no points, and start neither scraper nor trackers' thread.
_LEAST = 0.2
_LEVELS = (
    "memory",
    "memory_total",
    "node_memory",
    "node_memory_total",
    "gpu_memory",
    "gpu_memory_total",
)
# Known only for the whole node, not for the job.
_SHARED = ("net_in", "net_out")

_NEW = process_usage.Rank(0.0, 0)

# A series and its value: (name, GPU or None, rank or None).
Sample = dict[tuple[str, int | None, int | None], float]


class Monitor:
    """Samples from its creation until ``stop``. ``roots`` returns each rank's first process. Points
    go ``into`` a file, one line per time: ``{"at": …, "points": [[name, gpu, rank, value], …]}``.
    ``lasts`` is called once, unless the attempt is short; ``also`` with each sample; ``held`` with
    the processes and the bytes of memory that they hold. ``most``: the job's memory limit in bytes.
    """

    def __init__(
        self,
        roots: Callable[[], Mapping[int, int]],
        into: Path,
        lasts: Callable[[], None] = lambda: None,
        also: Callable[[Sample], None] = lambda sample: None,
        held: Callable[[Members, Mapping[int, process_usage.Rank], int], None] = lambda *held: None,
        most: int | None = None,
    ) -> None:
        self._roots, self.into = roots, into
        self._lasts, self._also = lasts, also
        self._held, self._most = held, most
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and write all points."""
        self._over.set()
        # A GPU that has fallen off its bus may block its driver for ever.
        self._thread.join(timeout=2 * LOOK)

    def _watch(self) -> None:
        began, due = time.monotonic(), 0.0
        sampler = _Sampler(self._roots, self._most)
        samples = list[Sample]()
        if self._over.wait(_LEAST):
            return
        self._lasts()
        while not self._over.wait(LOOK):
            sample = sampler.look()
            self._also(sample)
            self._held(sampler.members, sampler.ranks, sampler.job.memory)
            samples.append(sample)
            if (age := time.monotonic() - began) >= due:
                self._write(merged(samples))
                samples.clear()
                due = age + min(_MOST, age * _PART)
        samples.append(sampler.look())
        self._write(merged(samples))

    def _write(self, points: Sample) -> None:
        rows = [[*series, round(value, 3)] for series, value in points.items()]
        # On a full disk some points are lost.
        if rows:
            line = json.dumps({"at": time.time(), "points": rows}).encode() + b"\n"
            with (
                contextlib.suppress(OSError),
                folder_trees.open_file(self.into, "ab", buffering=0) as file,
            ):
                size = file.seek(0, os.SEEK_END)
                if file.write(line) != len(line):
                    file.truncate(size)


class _Sampler:
    def __init__(self, roots: Callable[[], Mapping[int, int]], most: int | None) -> None:
        self._roots = roots
        self._most = most
        self._family = RankProcesses()
        self._gpus: Gpus | None = None
        self._node = process_usage.node()
        self._at = time.monotonic()
        self.members = Members({}, [])
        self.ranks: dict[int, process_usage.Rank] = {}
        self.job = process_usage.Job()

    def look(self) -> Sample:
        """Return the usage since the last call."""
        node, before = process_usage.node(), self._node
        self._node = node
        sample: Sample = {}
        for name, value in process_usage.between(before, node).items():
            sample[name if name in _SHARED else f"node_{name}", None, None] = value
        self._gpus = self._gpus or Gpus()  # not before the first look: a driver may block for ever
        for gpu, values in self._gpus.look().items():
            sample |= {(name, gpu, None): value for name, value in values.items()}
        total = node.memory_total if self._most is None else min(self._most, node.memory_total)
        sample["memory_total", None, None] = float(total)
        return sample | self._of_processes(node.total - before.total)

    def _of_processes(self, seconds: float) -> Sample:
        """Of the job and its ranks; ``seconds`` are those of all CPUs since the last call."""
        sample: Sample = {}
        self.members = self._family.look(self._roots())
        now = time.monotonic()
        passed, self._at = max(now - self._at, 1e-3), now
        used = process_usage.of_processes(self.members.job)
        if not used:
            return {}  # all have ended; keep their last values
        ranks = {rank: process_usage.total(pids, used) for rank, pids in self.members.ranks.items()}
        for rank, usage in ranks.items():
            sample["memory", None, rank] = float(usage.memory)
            # It decreases when a process ends that its parent has not waited for.
            busy = max(0.0, usage.busy - self.ranks.get(rank, _NEW).busy)
            sample["cpu", None, rank] = 100 * busy / passed
        whole, before = process_usage.total(used, used), self.job
        job = process_usage.Job(whole.busy, whole.memory, *process_usage.moved(used))
        busy = max(0.0, job.busy - before.busy)
        sample["cpu", None, None] = min(100.0, 100 * busy / seconds) if seconds > 0 else 0.0
        sample["memory", None, None] = float(job.memory)
        sample["disk_read", None, None] = max(0, job.disk_read - before.disk_read) / passed
        sample["disk_write", None, None] = max(0, job.disk_write - before.disk_write) / passed
        self.ranks, self.job = ranks, job
        return sample


def merged(samples: Iterable[Sample]) -> Sample:
    """Merge samples into one: the maximum of each level, the mean of each load and rate."""
    values_of: dict[tuple[str, int | None, int | None], list[float]] = {}
    for sample in samples:
        for series, value in sample.items():
            values_of.setdefault(series, []).append(value)
    return {
        series: max(values) if series[0] in _LEVELS else sum(values) / len(values)
        for series, values in values_of.items()
    }
