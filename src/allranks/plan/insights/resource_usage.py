"""What a job used while it trained, and what its record lacks to say what held it back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from allranks.plan.amounts import size_text
from allranks.plan.insights import evidence
from allranks.plan.insights.evidence import LEAST, Span
from allranks.plan.insights.job_facts import Facts, Point


def used(job: Facts) -> tuple[str, ...]:
    """Sentences on what was measured while the ranks trained: steps, processors, GPUs, disks,
    network. Means; of nodes and GPUs those of the least and of the most busy."""
    span = evidence.training(job)
    return () if span is None else (*_steps(job), *_loads(job, span), *_traffic(job, span))


def needed(job: Facts) -> tuple[str, ...]:
    """What would tell more, as sentences; empty where nothing that a user can add is missing."""
    if job.started_at is None:
        return (f"{job.name} is {job.status}: its ranks have not started",)
    return tuple(_lacks(job))


def _lacks(job: Facts) -> Iterator[str]:
    missing = [name for name in ("batch_time", "data_time") if not job.of_ranks(name)]
    if missing:
        are = " and ".join(missing)
        yield (
            f"print the seconds of each step and of its wait for data, and read them as metrics "
            f"({are} missing): -m 'batch_time=step (\\S+)' -m 'data_time=data (\\S+)'"
        )
    span = evidence.training(job)
    if span is not None and not evidence.seen(job, "cpu", "node", span):
        took = span.end - span.begin
        yield (
            f"let it train longer: loads are sampled once a second, and of {took:.0f} s there are "
            f"fewer than the {2 * LEAST} samples that prove something"
        )
    elif span is not None and job.gpus and not evidence.gpus(job, "gpu_load", span):
        yield "the load of the job's GPUs was not seen on every node"


def _steps(job: Facts) -> Iterator[str]:
    """By `batch_time`, else by when the points of the metric that was reported most often came."""
    if times := evidence.step_times(job):
        means = [each.mean for each in times.values()]
        yield f"a step took {_between(means, '.3g', ' s')}"
        return
    every = [
        (len(points), each.name, seconds)
        for each in job.metrics
        if each.rank in job.trainers
        and (points := evidence.settled(each.sound))
        and (seconds := _pace(points)) is not None
    ]
    if every:
        _, name, seconds = max(every)
        yield f"a step of `{name}` took {seconds:.3g} s, by when it was reported"


def _pace(points: tuple[Point, ...]) -> float | None:
    """Seconds of a step as the points count them; of a point where they do not count upwards."""
    steps = [point.step for point in points]
    known = [step for step in steps if step is not None]
    upwards = len(known) == len(steps) and all(one < two for one, two in pairwise(known))
    count = known[-1] - known[0] if upwards else len(points) - 1
    took = points[-1].at - points[0].at
    return took / count if took > 0 else None


def _loads(job: Facts, span: Span) -> Iterator[str]:
    nodes = [each.mean for each in evidence.seen(job, "cpu", "node", span)]
    if nodes:
        said = f"processors were busy {_between(nodes, '.0f', '%')}"
        ranks = [each.mean / 100 for each in evidence.seen(job, "cpu", "rank", span)]
        if ranks:
            said += f"; a rank used {_between(ranks, '.1f', '')} of them"
        yield said
    if gpus := [each.mean for each in evidence.gpus(job, "gpu_load", span)]:
        yield f"GPUs were busy {_between(gpus, '.0f', '%')}"


def _traffic(job: Facts, span: Span) -> Iterator[str]:
    for what, names in (
        ("disks read and wrote", ("disk_read", "disk_write")),
        ("the network carried", ("net_in", "net_out")),
    ):
        nodes: dict[int | None, float] = {}
        for name in names:
            for each in evidence.seen(job, name, "node", span):
                nodes[each.series.node] = nodes.get(each.series.node, 0.0) + each.mean
        if nodes:
            yield f"{what} {size_text(max(nodes.values()))}/s on the busiest node"


def _between(values: list[float], form: str, unit: str) -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
