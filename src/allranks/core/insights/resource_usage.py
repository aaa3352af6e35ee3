"""What a job used while it trained, and which data is missing to find its bottleneck."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from allranks.core.amounts import size_text
from allranks.core.insights import evidence
from allranks.core.insights.evidence import LEAST, Span
from allranks.core.insights.job_facts import Facts, Point


def used(job: Facts) -> tuple[str, ...]:
    """Sentences on steps, CPUs, GPUs, disks and network while the ranks trained: means, from the
    least to the most busy node or GPU."""
    span = evidence.training(job)
    return () if span is None else (*_steps(job), *_loads(job, span), *_traffic(job, span))


def needed(job: Facts) -> tuple[str, ...]:
    """Sentences on what a user can add to learn more; empty if nothing is missing."""
    if job.started_at is None:
        return (f"{job.name} is {job.status}: its ranks have not started",)
    return tuple(_missing(job))


def _missing(job: Facts) -> Iterator[str]:
    missing = [name for name in ("batch_time", "data_time") if not job.of_ranks(name)]
    if missing:
        yield (
            f"log the seconds of each step and of its wait for data ({' and '.join(missing)} "
            "missing): print them and add -m 'batch_time=step (\\S+)' -m 'data_time=data (\\S+)'"
        )
    span = evidence.training(job)
    if span is not None and not evidence.series_of(job, "cpu", "node", span):
        took = span.end - span.begin
        yield (
            f"train longer: load is sampled once a second, and {took:.0f} s give fewer than the "
            f"{2 * LEAST} samples needed"
        )
    elif span is not None and job.gpus and not evidence.gpus(job, "gpu_load", span):
        yield "the load of the job's GPUs was not recorded on every node"


def _steps(job: Facts) -> Iterator[str]:
    """From `batch_time`; otherwise from the times of the metric that was logged most often."""
    if times := evidence.step_times(job):
        means = [time.mean for time in times.values()]
        yield f"a step took {_between(means, '.3g', ' s')}"
        return
    every = [
        (len(points), series.name, seconds)
        for series in job.metrics
        if series.rank in job.trainers
        and (points := evidence.settled(series.sound))
        and (seconds := _pace(points)) is not None
    ]
    if every:
        _, name, seconds = max(every)
        yield f"a step of `{name}` took {seconds:.3g} s, from the times it was logged at"


def _pace(points: tuple[Point, ...]) -> float | None:
    """Seconds per step; per point if the points have no increasing steps."""
    steps = [point.step for point in points]
    numbered = [step for step in steps if step is not None]
    upwards = len(numbered) == len(steps) and all(one < two for one, two in pairwise(numbered))
    count = numbered[-1] - numbered[0] if upwards else len(points) - 1
    took = points[-1].at - points[0].at
    return took / count if took > 0 else None


def _loads(job: Facts, span: Span) -> Iterator[str]:
    nodes = [load.mean for load in evidence.series_of(job, "cpu", "node", span)]
    if nodes:
        sentence = f"CPUs were busy {_between(nodes, '.0f', '%')}"
        ranks = [usage.mean / 100 for usage in evidence.series_of(job, "cpu", "rank", span)]
        if ranks:
            sentence += f"; a rank used {_between(ranks, '.1f', '')} CPUs"
        yield sentence
    if gpus := [load.mean for load in evidence.gpus(job, "gpu_load", span)]:
        yield f"GPUs were busy {_between(gpus, '.0f', '%')}"


def _traffic(job: Facts, span: Span) -> Iterator[str]:
    for text, names in (
        ("disks read and wrote", ("disk_read", "disk_write")),
        ("the network carried", ("net_in", "net_out")),
    ):
        nodes: dict[int | None, float] = {}
        for name in names:
            for load in evidence.series_of(job, name, "node", span):
                nodes[load.series.node] = nodes.get(load.series.node, 0.0) + load.mean
        if nodes:
            yield f"{text} {size_text(max(nodes.values()))}/s on the busiest node"


def _between(values: list[float], form: str, unit: str) -> str:
    low = f"{min(values):{form}}"
    high = f"{max(values):{form}}"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
