"""How a job scales: runs of the same work at several sizes, side by side.

* **time**: from the start of the ranks to the end of the last of them.
* **overhead**: the rest of the job's time: queue, nodes, environment, code, data, outputs. It does
  not shrink with more nodes and does not depend on the script, so it is reported separately.
* **whole**: both together, from submission to end.
* **speed-up** of a run: the time of the smallest size (median of its runs) divided by its own. This
  is the speed-up over one (Amdahl 1967) only if the smallest size is one.
* **efficiency**: the speed-up divided by the ratio of sizes. 1 is ideal.

Speed-up and efficiency are omitted if the work was not equal (``comparable_runs.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from allranks.core.insights import amdahl
from allranks.core.insights.amdahl import Fit, Interval
from allranks.core.insights.comparable_runs import Same, Work, compared, in_all
from allranks.core.insights.job_facts import Facts

# Relative deviation from the law above the scatter of equal runs on a shared machine.
OFF = 0.10
# Efficiency slightly above 1 is chance.
ABOVE = 1.02


class Gain(NamedTuple):
    """Speed-up and efficiency relative to the smallest size."""

    speedup: float
    efficiency: float


class Row(NamedTuple):
    """A run. Times in seconds; ``before`` and ``after`` make up the overhead. ``gain`` refers to
    the time, ``whole_gain`` to the whole. ``samples`` are those of all ranks, if logged."""

    name: str
    size: int
    ranks: int
    time: float
    before: float
    after: float
    samples: float | None = None
    gain: Gain | None = None
    whole_gain: Gain | None = None

    @property
    def overhead(self) -> float:
        return self.before + self.after

    @property
    def whole(self) -> float:
        return self.before + self.time + self.after

    @property
    def throughput(self) -> float | None:
        """Samples per second of all ranks while they ran."""
        return self.samples / self.time if self.samples and self.time > 0 else None


class Next(NamedTuple):
    """The seconds that one more node or rank than ``size`` would save, according to the law."""

    size: int
    seconds: float
    interval: Interval | None


class Scaling(NamedTuple):
    """``unit`` of sizes is nodes, or ranks if the ranks per node differ."""

    unit: str
    rows: tuple[Row, ...]
    work: Work
    fit: Fit | None = None
    next: Next | None = None
    warnings: tuple[str, ...] = ()


def scaling(jobs: Sequence[Facts], *, assume_equal: bool = False) -> Scaling:
    """The report on these runs, smallest first. Runs that did not complete are left out, with a
    warning. ``assume_equal``: different requests count as equal work; different results do not."""
    runs = [job for job in jobs if _seconds(job) is not None]
    excluded = [f"{job.name} is {job.status}: left out" for job in jobs if job not in runs]
    unit = "nodes" if len({job.ranks / job.nodes for job in runs}) <= 1 else "ranks"
    runs.sort(key=lambda job: (_size(job, unit), job.created_at, job.name))
    rows = tuple(_row(job, unit) for job in runs)
    if not rows:
        return Scaling(unit, (), Work(Same.ASSUMED), warnings=tuple(excluded))
    work = compared(runs)
    warnings = [*excluded, *_caveats(runs)]
    if work.same is Same.UNEQUAL and not (assume_equal and not work.done):
        return Scaling(unit, rows, work, warnings=tuple(warnings))
    rows = _with_gains(rows)
    fit = amdahl.fit([(row.size, row.time) for row in rows])
    warnings += _misfits(rows, fit, unit)
    return Scaling(unit, rows, work, fit, fit and _next(rows, fit), tuple(warnings))


def _seconds(job: Facts) -> float | None:
    """How long the ranks of a completed job ran."""
    ended = job.ranks_ended_at or job.ended_at
    if job.status != "Completed" or job.started_at is None or ended is None:
        return None
    return ended - job.started_at if ended > job.started_at else None


def _size(job: Facts, unit: str) -> int:
    return job.nodes if unit == "nodes" else job.ranks


def _row(job: Facts, unit: str) -> Row:
    seconds = _seconds(job)
    assert seconds is not None
    assert job.started_at is not None
    before = max(0.0, job.started_at - job.created_at)
    after = max(0.0, (job.ended_at or 0.0) - job.started_at - seconds)
    return Row(job.name, _size(job, unit), job.ranks, seconds, before, after, in_all(job))


def _with_gains(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    least = rows[0].size
    smallest = [row for row in rows if row.size == least]
    time = median(row.time for row in smallest)
    whole = median(row.whole for row in smallest)
    return tuple(
        row._replace(
            gain=_gain(time / row.time, row.size / least),
            whole_gain=_gain(whole / row.whole, row.size / least),
        )
        for row in rows
    )


def _gain(speedup: float, larger: float) -> Gain:
    return Gain(speedup, speedup / larger)


def _next(rows: Sequence[Row], fit: Fit) -> Next:
    largest = rows[-1].size
    return Next(largest, fit.saved(largest), fit.saved_interval(largest))


def _caveats(jobs: Sequence[Facts]) -> Iterable[str]:
    """Reasons to doubt the times of these runs."""
    for job in jobs:
        if job.attempts > 1:
            yield f"{job.name} took {job.attempts} attempts: its time includes all of them"
    shared = [job.name for job in jobs if _shares_hosts(job)]
    if shared:
        yield f"several nodes ran on one machine and shared its CPUs: {', '.join(shared)}"
    if len({job.compute for job in jobs}) > 1:
        places = dict.fromkeys(f"{job.compute} ({job.name})" for job in jobs)
        yield f"the runs used several computes: {', '.join(places)}"


def _shares_hosts(job: Facts) -> bool:
    hosts = [host for host in job.hosts if host]
    return len(set(hosts)) < len(hosts)


def _misfits(rows: Sequence[Row], fit: Fit | None, unit: str) -> Iterable[str]:
    """Results that the law cannot explain."""
    if fit is None:
        yield "all runs have the same size: run another size to see how the job scales"
        return
    for row in rows:
        if row.size > rows[0].size and row.gain and row.gain.efficiency > ABOVE:
            larger = f"{row.size / rows[0].size:g}"
            yield (
                f"{row.name} is more than {larger} times as fast on {larger} times as many "
                f"{unit}: caches may hold more of the data, or the run did less work"
            )
    off = [row.name for row in rows if abs(fit.at(row.size) - row.time) > OFF * row.time]
    if off and not fit.note:
        yield f"deviates from the fitted law by more than {OFF:.0%}: {', '.join(off)}"
    short = [row.name for row in rows if row.overhead > row.time]
    if short:
        yield f"ran for less time than the overhead took: {', '.join(short)}"
