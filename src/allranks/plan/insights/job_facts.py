"""What is known of a job that ran, as the reports look at it: facts, metrics, use of resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# More than any count of bytes or samples; neither infinite nor "not a number".
_ABSURD = 1e18


class Point(NamedTuple):
    """One value: ``at`` in seconds since the epoch, ``step`` as the rank counts, if it does."""

    at: float
    value: float
    step: int | None = None


class Series(NamedTuple):
    """The values of one name in order. A metric is of a ``rank``; what a monitor saw is of a
    ``node``, one of its ``gpu`` s, or a ``rank``."""

    name: str
    points: tuple[Point, ...]
    rank: int | None = None
    node: int | None = None
    gpu: int | None = None

    @property
    def sound(self) -> tuple[Point, ...]:
        """The points that can be reckoned with: a loss that diverged may be anything."""
        return tuple(point for point in self.points if abs(point.value) < _ABSURD)


class Facts(NamedTuple):
    """A job as far as reports need it. Times in seconds since the epoch, None where that has not
    happened; ``gpus`` are those that each node was asked for, ``cpus`` and ``hosts`` those of the
    nodes where they are known.

    ``asked`` is what tells one piece of work from another (code, command, inputs, …) as text, None
    where it is not known; ``aside`` the ranks that do not train (parameter servers, evaluators);
    ``logged`` the bytes that each rank printed. Of the series those of the last attempt are here.
    """

    name: str
    status: str = "Completed"
    reason: str = ""
    nodes: int = 1
    ranks: int = 1
    gpus: int = 0
    cpus: tuple[int | None, ...] = ()
    hosts: tuple[str | None, ...] = ()
    distribution: str = "none"
    compute: str = ""
    attempts: int = 1
    created_at: float = 0.0
    started_at: float | None = None
    ranks_ended_at: float | None = None
    ended_at: float | None = None
    asked: Mapping[str, str | None] = {}
    aside: frozenset[int] = frozenset()
    logged: Mapping[int, int] = {}
    metrics: tuple[Series, ...] = ()
    resources: tuple[Series, ...] = ()

    @property
    def trainers(self) -> frozenset[int]:
        """The ranks that train."""
        return frozenset(range(self.ranks)) - self.aside

    def of_ranks(self, name: str) -> dict[int, tuple[Point, ...]]:
        """The metric of that name, by rank that trains: its finite values, of those that have
        some."""
        found = {
            each.rank: each.sound
            for each in self.metrics
            if each.name == name and each.rank in self.trainers and each.rank is not None
        }
        return {rank: points for rank, points in found.items() if points}


def counted(values: Iterable[float]) -> float:
    """How far a counter went that begins anew now and then, as one that counts within an epoch
    does: the sum of what it had reached each time."""
    total, before = 0.0, None
    for value in values:
        if before is not None and value < before:
            total += before
        before = value
    return total + (before or 0.0)


def epochs(job: Facts) -> float | None:
    """How many epochs its ranks trained, as `epoch` tells; None when they do not agree, or when a
    restart may have taken some of them along."""
    found = {_epochs([p.value for p in points]) for points in job.of_ranks("epoch").values()}
    return found.pop() if len(found) == 1 and job.attempts == 1 else None


def _epochs(values: Sequence[float]) -> float:
    """From 0 or from 1 on where they are whole numbers, else the part of the data that was seen."""
    whole = all(value == int(value) for value in values)
    return max(values) - min(values) + 1 if whole else max(values)


def samples(job: Facts) -> dict[int, float] | None:
    """How many samples each rank went through; None where a rank does not tell, or where what they
    tell can be read in two ways."""
    told = job.of_ranks("samples")
    if len(told) != len(job.trainers) or job.attempts != 1:
        return None
    found = {rank: _samples([p.value for p in at], epochs(job)) for rank, at in told.items()}
    known = {rank: count for rank, count in found.items() if count}
    return known if len(known) == len(found) else None


def _samples(values: Sequence[float], told_epochs: float | None) -> float | None:
    if len(values) > 1 and min(values) == max(values):
        # Once an epoch the size of the epoch, or once and for all the same count.
        return sum(values) if told_epochs == len(values) else None
    return counted(values)
