"""How a job scales: runs of the same work at several sizes, side by side.

* **time**: from the moment the ranks started to the moment the last of them had ended.
* **overhead**: what else the job took, before and after: queue, nodes, environment, code, data,
  outputs. It does not shrink with more nodes and says nothing of the script, so it stands apart.
* **whole**: both together, from the submission to the end.
* **speed-up** of a run: the time of the smallest size (the median of its runs) by the run's own.
  That is the speed-up over one (Amdahl 1967) only where the smallest size is one.
* **efficiency**: speed-up by how many times larger the run was. 1 is ideal.

Neither is told where the work was not equal (``plan/insights/comparable_runs.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from allranks.plan.insights import amdahl
from allranks.plan.insights.amdahl import Fit, Interval
from allranks.plan.insights.comparable_runs import Same, Work, compared, in_all
from allranks.plan.insights.job_facts import Facts

# A run is off the law by more than runs of the same job scatter on a machine that is not empty.
OFF = 0.10
# A little above the ideal is chance.
ABOVE = 1.02


class Gain(NamedTuple):
    """How much faster than the smallest size, and how much of what was added came of it."""

    speedup: float
    efficiency: float


class Row(NamedTuple):
    """A run. Times in seconds; ``before`` and ``after`` make up the overhead; ``gain`` is that of
    the time, ``whole_gain`` that of the whole. ``samples`` of all ranks, where they tell."""

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
        """Samples a second of all ranks, while they ran."""
        return self.samples / self.time if self.samples and self.time > 0 else None


class Next(NamedTuple):
    """What one more (a node, a rank) than ``size`` would save, in seconds, as the law has it."""

    size: int
    seconds: float
    interval: Interval | None


class Scaling(NamedTuple):
    """``unit`` is what sizes count: nodes, or ranks where the nodes do not tell the size."""

    unit: str
    rows: tuple[Row, ...]
    work: Work
    fit: Fit | None = None
    next: Next | None = None
    warnings: tuple[str, ...] = ()


def scaling(jobs: Sequence[Facts], *, assume_equal: bool = False) -> Scaling:
    """The report on these runs, smallest first. Those that did not complete are left out, with a
    warning. ``assume_equal``: what differs in what the runs were asked for changes no work; what
    they did otherwise still counts."""
    runs = [job for job in jobs if _seconds(job) is not None]
    left = [f"{job.name} is {job.status}: left out" for job in jobs if job not in runs]
    unit = "nodes" if len({job.ranks / job.nodes for job in runs}) <= 1 else "ranks"
    runs.sort(key=lambda job: (_size(job, unit), job.created_at, job.name))
    rows = tuple(_row(job, unit) for job in runs)
    if not rows:
        return Scaling(unit, (), Work(Same.ASSUMED), warnings=tuple(left))
    work = compared(runs)
    warnings = [*left, *_doubts(runs)]
    if work.same is Same.UNEQUAL and not (assume_equal and not work.done):
        return Scaling(unit, rows, work, warnings=tuple(warnings))
    rows = _with_gains(rows)
    fit = amdahl.fit([(row.size, row.time) for row in rows])
    warnings += _misfits(rows, fit, unit)
    return Scaling(unit, rows, work, fit, fit and _next(rows, fit), tuple(warnings))


def _seconds(job: Facts) -> float | None:
    """How long its ranks ran, of a job that completed."""
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
    time, whole = median(row.time for row in smallest), median(row.whole for row in smallest)
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


def _doubts(jobs: Sequence[Facts]) -> Iterable[str]:
    """What makes the times of these runs say less than they seem to."""
    for job in jobs:
        if job.attempts > 1:
            yield f"{job.name} took {job.attempts} attempts: its time is that of all of them"
    shared = [job.name for job in jobs if _doubled(job)]
    if shared:
        yield f"several nodes were on one machine and shared its processors: {', '.join(shared)}"
    if len({job.compute for job in jobs}) > 1:
        places = dict.fromkeys(f"{job.compute} ({job.name})" for job in jobs)
        yield f"the runs were on several computes: {', '.join(places)}"


def _doubled(job: Facts) -> bool:
    """Whether nodes of it are known to have been on one machine."""
    known = [host for host in job.hosts if host]
    return len(set(known)) < len(known)


def _misfits(rows: Sequence[Row], fit: Fit | None, unit: str) -> Iterable[str]:
    """What the runs show that the law, or anything real, would not."""
    if fit is None:
        yield "all runs are of one size: run the same at another to see how it scales"
        return
    for row in rows:
        if row.size > rows[0].size and row.gain and row.gain.efficiency > ABOVE:
            larger = f"{row.size / rows[0].size:g}"
            yield (
                f"{row.name} is more than {larger} times as fast on {larger} times as many "
                f"{unit}: caches may hold more there, or its work was less"
            )
    off = [row.name for row in rows if abs(fit.at(row.size) - row.time) > OFF * row.time]
    if off and not fit.note:
        yield f"off the fitted law by more than {OFF:.0%}: {', '.join(off)}"
    alone = [row.name for row in rows if row.overhead > row.time]
    if alone:
        yield f"ran for less time than their overhead took: {', '.join(alone)}"
