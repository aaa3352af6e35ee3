"""What the record shows of how a job spent its time: means, with what makes them worth believing.

Everything is a ratio of what was measured in the same run, so that nothing depends on how fast a
machine is; and everything is asked of both halves of the run, so that a beginning, a pause or a
single odd step proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median_low
from typing import NamedTuple

from allranks.core.insights.job_facts import Facts, Point, Series

# Of fewer points a mean says little: 20 make its error a fifth or so of their own scatter.
LEAST = 20
# The first steps import, compile, fill caches and read ahead: they are not like the others.
WARM_UP = 0.1
# How much more than its step a wait for data may seem to be before the names mean something else.
ROUNDED = 1.02


class Halves(NamedTuple):
    """A mean of the first half of a run, and of the second."""

    first: float
    second: float

    @property
    def mean(self) -> float:
        return (self.first + self.second) / 2

    @property
    def least(self) -> float:
        return min(self)

    @property
    def most(self) -> float:
        return max(self)


class Span(NamedTuple):
    """A stretch of time."""

    begin: float
    end: float

    def of(self, points: Iterable[Point]) -> tuple[Point, ...]:
        return tuple(point for point in points if self.begin <= point.at <= self.end)

    @property
    def halves(self) -> tuple[Span, Span]:
        middle = (self.begin + self.end) / 2
        return Span(self.begin, middle), Span(middle, self.end)


def settled(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points after the beginning; none where too few are left to say anything."""
    rest = tuple(points[max(1, math.ceil(len(points) * WARM_UP)) :])
    return rest if len(rest) >= LEAST else ()


def mean(points: Iterable[Point]) -> float:
    return fmean(point.value for point in points)


def step_times(job: Facts) -> dict[int, Halves]:
    """The seconds of a step, by rank; only of ranks that told often enough."""
    times = _by_rank(job, "batch_time")
    return {rank: seconds for rank, seconds in times.items() if seconds.least > 0}


def waits(job: Facts) -> dict[int, Halves]:
    """The part of a step that a rank waited for data, from 0 to 1; nothing at all where what is
    called so cannot be a part of the step."""
    steps = step_times(job)
    data = _by_rank(job, "data_time")
    shares = {
        rank: Halves(*(part / whole for part, whole in zip(data[rank], steps[rank], strict=True)))
        for rank in data.keys() & steps.keys()
    }
    senseless = any(share.most > ROUNDED or share.least < 0 for share in shares.values())
    return {} if senseless else dict(sorted(shares.items()))


def awaited(job: Facts) -> Halves | None:
    """The part of a step that it took to wait for data, from 0 to 1.

    Ranks that exchange gradients go at the pace of the slowest. Where all loaders are too slow, the
    one that is behind by a hair makes its rank wait for data, and the others, whose loaders can
    read ahead meanwhile, wait for that rank: what counts is the longest wait of each step. Ranks
    that do not work together count by what most of them do.
    """
    longest_waits = waits(job)
    if not longest_waits:
        return None
    if job.distribution == "none" and job.ranks > 1:
        alone = len(longest_waits) == len(job.trainers)
        several = list(longest_waits.values())
        return (
            Halves(*(median_low(wait[half] for wait in several) for half in (0, 1)))
            if alone
            else None
        )
    longest = Halves(*(max(wait[half] for wait in longest_waits.values()) for half in (0, 1)))
    return _step_by_step(job, list(longest_waits)) or longest


def _step_by_step(job: Facts, ranks: Sequence[int]) -> Halves | None:
    """The same from the steps that all these ranks told of; None where they are too few."""
    series = job.of_ranks("data_time")
    data = [_by_step(settled(series[rank])) for rank in ranks]
    steps = sorted(set.intersection(*(set(by_step) for by_step in data)))
    if len(steps) < LEAST or len(ranks) == 1:
        return None
    times = step_times(job)
    middle = len(steps) // 2
    return Halves(
        *(
            fmean(max(by_step[step] for by_step in data) for step in part)
            / fmean(times[rank][half] for rank in ranks)
            for half, part in enumerate((steps[:middle], steps[middle:]))
        )
    )


def _by_step(points: Iterable[Point]) -> dict[int, float]:
    """Of steps that are counted anew in each epoch, nothing: they name no step."""
    steps = [point.step for point in points]
    if None in steps or len(set(steps)) < len(steps):
        return {}
    return {point.step: point.value for point in points if point.step is not None}


def _by_rank(job: Facts, name: str) -> dict[int, Halves]:
    series = {rank: settled(points) for rank, points in job.of_ranks(name).items()}
    return {rank: _halves(points) for rank, points in series.items() if points}


def _halves(points: Sequence[Point]) -> Halves:
    middle = len(points) // 2
    return Halves(mean(points[:middle]), mean(points[middle:]))


def training(job: Facts) -> Span | None:
    """From the first step after the beginning to the last: by `batch_time` and `data_time`, else by
    whatever metrics the ranks report often enough. Without any, all the time that they ran."""
    for names in (
        ("batch_time", "data_time"),
        dict.fromkeys(metric.name for metric in job.metrics),
    ):
        trails = [
            points
            for name in names
            for series in job.of_ranks(name).values()
            if (points := settled(series))
        ]
        if trails:
            return Span(min(at[0].at for at in trails), max(at[-1].at for at in trails))
    ended = job.ranks_ended_at or job.ended_at
    return None if job.started_at is None or ended is None else Span(job.started_at, ended)


class Evidence(NamedTuple):
    """What a monitor saw of a node, a GPU or a rank while the ranks trained."""

    series: Series
    mean: float
    most: float


def series_of(job: Facts, name: str, of: str, span: Span | None) -> list[Evidence]:
    """The series of that name ``of`` each "node", "gpu" or "rank"; only those with enough points
    in the span."""
    selected = (series for series in job.resources if series.name == name and _of(series) == of)
    evidence = []
    for series in selected:
        points = span.of(series.sound) if span else ()
        if len(points) >= LEAST:
            evidence.append(Evidence(series, mean(points), max(point.value for point in points)))
    return evidence


def _of(series: Series) -> str:
    if series.gpu is not None:
        return "gpu"
    return "node" if series.rank is None else "rank"


def gpus(job: Facts, name: str, span: Span | None) -> list[Evidence]:
    """Of each GPU that the job was given; none where the monitor saw others, or not all of them:
    then nobody knows which are the job's."""
    measured = series_of(job, name, "gpu", span)
    return measured if job.gpus and len(measured) == job.gpus * job.nodes else []


def computing(job: Facts) -> dict[int, Halves]:
    """How much of processors each rank used while they trained, in percent of one."""
    span = training(job)
    return {
        usage.series.rank: _halves(span.of(usage.series.sound))
        for usage in series_of(job, "cpu", "rank", span)
        if span is not None and usage.series.rank in job.trainers
    }


def cpu_load(job: Facts, span: Span | None) -> float | None:
    """How busy the least busy node was, in percent; None where a node was not watched."""
    loads = series_of(job, "node_cpu", "node", span)
    return min(load.mean for load in loads) if len(loads) == job.nodes else None


def own_share(job: Facts, span: Span | None) -> float | None:
    """Which part of what its machines' processors did was for the job's ranks, from 0 to 1."""
    nodes = series_of(job, "node_cpu", "node", span)
    ranks = series_of(job, "cpu", "rank", span)
    cpus = dict(enumerate(job.cpus))
    if len(nodes) != job.nodes or len(ranks) != job.ranks or len(job.cpus) != job.nodes:
        return None
    hosts = dict(enumerate(job.hosts))
    # Nodes of one machine see the same processors: they count once.
    machines: Mapping[object, float] = {
        hosts.get(node) or node: load.mean * (cpus[node] or 0)
        for load in nodes
        if (node := load.series.node) is not None and node in cpus
    }
    whole = sum(machines.values())
    return sum(usage.mean for usage in ranks) / whole if whole > 0 else None


class Memory(NamedTuple):
    """How much of a node's memory was in use, from 0 to 1, over time."""

    node: int | None
    points: tuple[Point, ...]


def memory(job: Facts) -> list[Memory]:
    """Of each node whose memory was watched often enough."""
    totals = {
        resource.node: resource.sound[-1].value
        for resource in job.resources
        if resource.name == "node_memory_total" and _of(resource) == "node" and resource.sound
    }
    nodes, name = [], "node_memory"
    for resource in job.resources:
        total = totals.get(resource.node, 0.0)
        if resource.name == name and _of(resource) == "node" and total > 0:
            points = tuple(point._replace(value=point.value / total) for point in resource.sound)
            if len(points) >= LEAST:
                nodes.append(Memory(resource.node, points))
    return nodes
