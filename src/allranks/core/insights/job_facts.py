"""A job as the reports see it: facts, metrics and use of resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# Values above this, and NaN, are ignored.
_ABSURD = 1e18
# Metrics that are told with each step, and all of which reports need every point.
STEPWISE = ("batch_time", "data_time", "throughput", "samples_per_second", "it_per_second")
MEASURED = (*STEPWISE, "epoch", "samples", "dataset_size")


class Point(NamedTuple):
    """One value: ``at`` in seconds since the epoch; ``step`` as logged, if at all."""

    at: float
    value: float
    step: int | None = None


class Series(NamedTuple):
    """The values of one name in order of time. Metrics belong to a ``rank``; monitored resources to
    a ``node``, one of its GPUs or a ``rank``."""

    name: str
    points: tuple[Point, ...]
    rank: int | None = None
    node: int | None = None
    gpu: int | None = None

    @property
    def sound(self) -> tuple[Point, ...]:
        """The points with usable values: a diverged loss may be anything."""
        return tuple(point for point in self.points if abs(point.value) < _ABSURD)


class Facts(NamedTuple):
    """A job as far as reports need it. Times are seconds since the epoch, None if not reached.

    ``gpus`` is the number requested per node; ``cpus`` and ``hosts`` are those of each node, if
    known, ``rdma`` whether each has RDMA ports; ``size_with_rdma`` is the instance
    type that was requested, if its cloud has RDMA between such machines.
    ``request`` identifies the work (code, command, inputs, …) as text, None if unknown;
    ``aside`` are the ranks that do not train (parameter servers, evaluators); ``logged`` the bytes
    that each rank printed. The series are those of the last attempt; of metrics that are not
    MEASURED, those of a few ranks are whole.
    """

    name: str
    status: str = "Completed"
    reason: str = ""
    nodes: int = 1
    ranks: int = 1
    gpus: int = 0
    cpus: tuple[int | None, ...] = ()
    hosts: tuple[str | None, ...] = ()
    rdma: tuple[bool | None, ...] = ()
    size_with_rdma: str = ""
    distribution: str = "none"
    compute: str = ""
    attempts: int = 1
    created_at: float = 0.0
    started_at: float | None = None
    ranks_ended_at: float | None = None
    ended_at: float | None = None
    request: Mapping[str, str | None] = {}
    aside: frozenset[int] = frozenset()
    logged: Mapping[int, int] = {}
    metrics: tuple[Series, ...] = ()
    resources: tuple[Series, ...] = ()

    @property
    def trainers(self) -> frozenset[int]:
        return frozenset(range(self.ranks)) - self.aside

    def of_ranks(self, name: str) -> dict[int, tuple[Point, ...]]:
        """The usable values of a metric by training rank, without ranks that have none."""
        series = {
            metric.rank: metric.sound
            for metric in self.metrics
            if metric.name == name and metric.rank in self.trainers and metric.rank is not None
        }
        return {rank: points for rank, points in series.items() if points}


def counted(values: Iterable[float]) -> float:
    """The total of a counter that restarts, for example with each epoch: the sum of the values it
    reached before each restart."""
    total, before = 0.0, None
    for value in values:
        if before is not None and value < before:
            total += before
        before = value
    return total + (before or 0.0)


def epochs(job: Facts) -> float | None:
    """The number of epochs, from the metric `epoch`; None if the ranks disagree or the job was
    restarted."""
    counts = {_epochs([p.value for p in points]) for points in job.of_ranks("epoch").values()}
    return counts.pop() if len(counts) == 1 and job.attempts == 1 else None


def _epochs(values: Sequence[float]) -> float:
    """Integers count from 0 or 1; other values are the processed share of the data."""
    whole = all(value == int(value) for value in values)
    return max(values) - min(values) + 1 if whole else max(values)


def samples(job: Facts) -> dict[int, float] | None:
    """The samples that each rank processed; None if a rank does not log them, or if the values are
    ambiguous."""
    series = job.of_ranks("samples")
    if len(series) != len(job.trainers) or job.attempts != 1:
        return None
    counts = {rank: _samples([p.value for p in at], epochs(job)) for rank, at in series.items()}
    positive = {rank: count for rank, count in counts.items() if count}
    return positive if len(positive) == len(counts) else None


def _samples(values: Sequence[float], epoch_count: float | None) -> float | None:
    if len(values) > 1 and min(values) == max(values):
        # Either the samples of each epoch, or the same total several times.
        return sum(values) if epoch_count == len(values) else None
    return counted(values)
