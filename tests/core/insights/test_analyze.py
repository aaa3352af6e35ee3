"""Insights: over simulated jobs with a known bottleneck, the right one or none at all."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.core import insights
from allranks.core.insights.analyze import report
from allranks.core.insights.insight import Bottleneck, Kind
from allranks.core.insights.job_facts import MEASURED, Facts, Point, Series
from tests.core.simulated import Loop, simulate

INPUT, COMPUTE = Bottleneck.INPUT, Bottleneck.COMPUTE
MEMORY, IMBALANCE = Bottleneck.MEMORY, Bottleneck.IMBALANCE
UNKNOWN = Bottleneck.UNKNOWN

# What holds each back, and whether its record is enough to tell.
CLEAR: dict[str, tuple[Bottleneck, Loop]] = {
    "gpu, loader twice too slow": (INPUT, Loop(gpus=1, load=1.2)),
    "gpu, loader far too slow": (INPUT, Loop(gpus=1, load=6.0, workers=4)),
    "gpu, one worker": (INPUT, Loop(gpus=1, load=0.6, workers=1)),
    "gpu, means so far": (INPUT, Loop(gpus=1, load=1.5, averaged=True)),
    "gpu, no free processors": (INPUT, Loop(gpus=1, load=9.0, workers=16)),
    "4 gpus, all wait": (INPUT, Loop(nodes=2, procs=2, gpus=2, load=2.0)),
    "processors, slow disk": (INPUT, Loop(load=1.5)),
    "processors of two nodes": (INPUT, Loop(nodes=2, load=2.0, spins=False)),
    "milliseconds a step": (INPUT, Loop(gpus=1, load=1.2, scale=0.01)),
    "gpu computes": (COMPUTE, Loop(gpus=1)),
    "gpu computes, noisy": (COMPUTE, Loop(gpus=1, noise=0.4)),
    "gpu computes, means so far": (COMPUTE, Loop(gpus=1, averaged=True)),
    "gpu computes, every step told": (COMPUTE, Loop(gpus=1, every=1)),
    "8 gpus compute": (COMPUTE, Loop(nodes=2, procs=4, gpus=4, noise=0.03, exchange=0.01)),
    "gpu with full memory beside it": (COMPUTE, Loop(gpus=1, memory=0.96)),
    "processors compute": (COMPUTE, Loop(load=0.02)),
    "processors of two nodes compute": (COMPUTE, Loop(nodes=2, noise=0.03, spins=False)),
    "four ranks on a node compute": (COMPUTE, Loop(procs=4, noise=0.03, spins=False)),
    "minutes a step": (COMPUTE, Loop(gpus=1, scale=300.0)),
    "gpu, memory fills": (MEMORY, Loop(gpus=1, fills=True)),
    "processors, memory fills": (MEMORY, Loop(fills=True, stolen=0.1)),
    "two nodes, memory fills": (MEMORY, Loop(nodes=2, gpus=1, fills=True)),
    "memory fills, noisy": (MEMORY, Loop(gpus=1, fills=True, noise=0.3, every=2)),
    "a node far from its data": (
        INPUT,
        Loop(nodes=4, gpus=1, load=0.2, far=2, times=8.0),
    ),
    "a node far from its data, processors": (
        INPUT,
        Loop(nodes=3, load=0.1, far=1, times=20.0, spins=False),
    ),
    "a slow rank, timed before the exchange": (
        IMBALANCE,
        Loop(nodes=4, gpus=1, slow=3, times=1.6, before_exchange=True),
    ),
    "a slow rank of two": (
        IMBALANCE,
        Loop(nodes=2, slow=0, times=2.0, before_exchange=True, spins=False),
    ),
    "a rank with more data": (
        IMBALANCE,
        Loop(nodes=4, gpus=1, slow=1, times=1.5, uneven=True),
    ),
}
HARD: dict[str, tuple[Bottleneck, Loop]] = {
    # Of equal loaders one is behind by chance and makes its rank wait; it need not be rank 0.
    "4 gpus, rank 0 tells": (INPUT, Loop(nodes=4, gpus=1, load=3.0, telling=0)),
    "4 gpus exchange": (UNKNOWN, Loop(nodes=4, gpus=1, exchange=0.6)),
    "4 gpus exchange, power unknown": (UNKNOWN, Loop(nodes=4, gpus=1, exchange=0.6, power=False)),
    "processors exchange": (UNKNOWN, Loop(nodes=4, exchange=0.6, spins=False)),
    "processors exchange, MPI polls": (
        UNKNOWN,
        Loop(nodes=4, exchange=0.6, distribution="mpi"),
    ),
    "a slow rank that the exchange hides": (
        IMBALANCE,
        Loop(nodes=4, gpus=1, slow=3, times=2.0),
    ),
    "rank 0 tells, and is far": (
        INPUT,
        Loop(nodes=4, gpus=1, load=0.2, far=0, times=8.0, telling=0),
    ),
    "rank 0 tells, rank 2 is far": (
        INPUT,
        Loop(nodes=4, gpus=1, load=0.2, far=2, times=8.0, telling=0),
    ),
    "4 gpus exchange half the time": (UNKNOWN, Loop(nodes=4, gpus=1, exchange=0.25)),
    "a host ahead of its gpu": (COMPUTE, Loop(gpus=1, load=1.2, ahead=True)),
    "others on the node": (UNKNOWN, Loop(cpus=16, stolen=0.9, gpus=1, python=2.0)),
    "python between steps": (UNKNOWN, Loop(gpus=1, python=3.0)),
    "steps that grow": (UNKNOWN, Loop(gpus=1, leaks=True, memory=0.97, python=1.0)),
    "checkpoints half the time": (UNKNOWN, Loop(gpus=1, pauses=20)),
    "a fifth of a step": (UNKNOWN, Loop(gpus=1, load=0.75)),
    "a short run": (INPUT, Loop(gpus=1, load=3.0, steps=60)),
}
JOBS = CLEAR | HARD


@cache
def simulated(name: str, seed: int = 0) -> Facts:
    return simulate(JOBS[name][1], seed)


def test_there_are_forty() -> None:
    assert len(JOBS) >= 40


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.medium
def test_the_right_bottleneck_or_none(name, seed):
    truth = JOBS[name][0]
    found = report(simulated(name, seed))
    assert found.bottleneck in (truth, UNKNOWN), found
    assert {each.verdict for each in found.insights} <= {truth, None}, found
    if name in CLEAR:
        assert found.bottleneck is truth, found


PROCESSORS = Bottleneck.PROCESSORS
# Of these the processors really are what everything waits for.
SATURATED = (
    "processors compute",
    "processors of two nodes compute",
    "four ranks on a node compute",
)


def untimed(name: str, seed: int = 0) -> Facts:
    """The same job with a script that prints its loss, and nothing of how long a step takes."""
    job = simulated(name, seed)
    kept = [each for each in job.metrics if each.name not in ("batch_time", "data_time")]
    losses = [
        each._replace(name="loss", points=tuple(p._replace(value=0.5) for p in each.points))
        for each in job.metrics
        if each.name == "batch_time"
    ]
    return job._replace(metrics=(*kept, *losses))


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.medium
def test_without_times_of_steps_the_loads_tell_the_bottleneck_or_none(name, seed):
    truth, loop = JOBS[name]
    job = untimed(name, seed)
    found = report(job)
    true = {truth, UNKNOWN}
    if truth is COMPUTE and not loop.gpus:
        true = {PROCESSORS, UNKNOWN}
    if name == "gpu, no free processors":
        true |= {PROCESSORS}
    assert found.bottleneck in true, found
    if name in SATURATED:
        assert found.bottleneck is PROCESSORS, found
    if name in ("gpu computes", "8 gpus compute", "gpu computes, noisy"):
        assert found.bottleneck is COMPUTE, found
    if found.bottleneck is UNKNOWN:
        said = " ".join(found.used)
        assert "a step of `loss` took" in said or name == "a short run"
        assert "CPUs were busy" in said
        assert "batch_time and data_time missing" in " ".join(found.needed)


def test_of_a_short_run_it_is_said_that_it_was_short():
    job = untimed("gpu computes")
    few = tuple(each._replace(points=each.points[:12]) for each in job.resources)
    found = report(job._replace(resources=few))
    assert found.bottleneck is UNKNOWN
    assert any("train longer" in each for each in found.needed)


def kinds(job: Facts) -> tuple[Bottleneck, list[Kind]]:
    found = report(job)
    return found.bottleneck, sorted(insight.kind for insight in found.insights)


SOME = st.sampled_from(
    ["4 gpus, all wait", "8 gpus compute", "a node far from its data", "a rank with more data"]
)


@settings(max_examples=20)
@given(SOME, st.randoms(use_true_random=False))
def test_the_order_of_ranks_changes_nothing(name, chance):
    job = simulated(name)
    order = list(range(job.ranks))
    chance.shuffle(order)

    def renamed(series):
        found = [s if s.rank is None else s._replace(rank=order[s.rank]) for s in series]
        chance.shuffle(found)
        return tuple(found)

    other = job._replace(metrics=renamed(job.metrics), resources=renamed(job.resources))
    assert kinds(other) == kinds(job)


@settings(max_examples=20)
@given(st.sampled_from(sorted(JOBS)), st.floats(1e-3, 1e3))
@pytest.mark.medium
def test_how_fast_a_machine_is_changes_nothing(name, factor):
    job = simulated(name)
    begin = job.started_at

    def later(at):
        return begin + (at - begin) * factor

    def slower(series, times):
        by = factor if series.name in times else 1.0
        points = tuple(Point(later(p.at), p.value * by, p.step) for p in series.points)
        return series._replace(points=points)

    other = job._replace(
        created_at=later(job.created_at),
        ranks_ended_at=later(job.ranks_ended_at),
        ended_at=later(job.ended_at),
        metrics=tuple(slower(each, ("batch_time", "data_time")) for each in job.metrics),
        resources=tuple(slower(each, ()) for each in job.resources),
    )
    assert kinds(other) == kinds(job)


@settings(max_examples=30)
@given(st.sampled_from(sorted(JOBS)), st.integers(0, 19))
@pytest.mark.medium
def test_of_few_points_nothing_is_concluded(name, count):
    job = simulated(name)
    cut = [
        [each._replace(points=each.points[:count]) for each in series]
        for series in (job.metrics, job.resources)
    ]
    few = job._replace(metrics=tuple(cut[0]), resources=tuple(cut[1]))
    counts = [each for each in few.metrics if each.name == "samples"]
    assert counts or report(few)[:2] == ((), UNKNOWN)


VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-1, 200)
NAMES = st.sampled_from(
    [
        *("batch_time", "data_time", "samples", "epoch", "dataset_size", "a\x00b"),
        *("cpu", "memory", "memory_total", "disk_read"),
        *("node_cpu", "node_memory", "node_memory_total", "node_disk_read"),
        *("gpu_load", "gpu_power", "gpu_power_limit"),
    ]
)
SERIES = st.builds(
    lambda name, values, rank, node, gpu, times: Series(
        name,
        tuple(Point(START + i, v, i) for i, v in enumerate(values * times)),
        rank=rank,
        node=node,
        gpu=gpu,
    ),
    NAMES,
    st.lists(VALUES, max_size=4),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 2),
    st.none() | st.integers(0, 1),
    st.integers(1, 30),
)
START = 1000.0


@settings(max_examples=200)
@given(
    st.lists(SERIES, max_size=12),
    st.sampled_from(["Completed", "Failed", "Running"]),
    st.integers(0, 2),
    st.dictionaries(st.integers(-1, 5), st.integers(0, 9)),
)
@pytest.mark.medium
def test_no_record_is_too_odd(series, status, gpus, logged):
    job = Facts("x", status, nodes=2, ranks=4, gpus=gpus, distribution="pytorch", logged=logged)
    job = job._replace(started_at=START, ended_at=START + 99, cpus=(4, None), hosts=("a", None))
    found = report(job._replace(metrics=tuple(series), resources=tuple(series)))
    for insight in found.insights:
        assert insight.sentence
        assert "nan" not in f"{insight.sentence} {insight.gain}"


# ---------------------------------------------------------------- what is said


def only(job: Facts, kind: Kind):
    found = [insight for insight in report(job).insights if insight.kind is kind]
    return found[0] if found else None


def test_what_a_slow_loader_costs_is_said_with_what_to_do():
    insight = only(simulated("gpu, loader twice too slow"), Kind.INPUT)
    assert "waited for data during" in insight.sentence
    assert "a GPU was idle 5" in insight.sentence
    assert "of the CPUs are free" in insight.hint
    # Two workers of 1.2 s a batch: 0.6 s a step, of which 0.3 s compute.
    assert insight.gain.startswith("up to 2.")
    busy = only(simulated("gpu, no free processors"), Kind.INPUT)
    assert "the CPUs are busy, too" in busy.hint


def test_the_rank_that_others_wait_for_is_named():
    assert only(simulated("a node far from its data"), Kind.INPUT).evidence["rank"] == 2
    insight = only(simulated("a slow rank, timed before the exchange"), Kind.IMBALANCE)
    assert insight.evidence["rank"] == 3
    assert "times as long per step as most ranks" in insight.sentence


def test_a_rank_that_computes_while_the_others_wait_is_named():
    """Steps are as long for all of them; only the processors tell."""

    def job(*loads: float) -> Facts:
        series = tuple(
            Series(
                "cpu",
                tuple(Point(at, load) for at in range(120)),
                rank=rank,
                node=0,
            )
            for rank, load in enumerate(loads)
        )
        times = {"started_at": 0.0, "ranks_ended_at": 120.0}
        return Facts("j", ranks=len(loads), distribution="pytorch", resources=series, **times)

    insight = only(job(52.0, 50.0, 51.0, 95.0), Kind.IMBALANCE)
    assert insight.evidence == {"rank": 3, "times_as_much": 1.863}
    assert insight.verdict is None
    assert only(job(99.0, 98.0, 97.0, 99.0), Kind.IMBALANCE) is None
    assert only(job(60.0, 50.0, 50.0), Kind.IMBALANCE) is None
    turns = job(95.0, 50.0, 50.0)
    other = job(50.0, 95.0, 50.0)
    halves = zip(turns.resources, other.resources, strict=True)
    swapped = [one._replace(points=one.points[:60] + two.points[60:]) for one, two in halves]
    assert only(turns._replace(resources=tuple(swapped)), Kind.IMBALANCE) is None


def test_a_node_without_memory_is_told_also_where_it_costs_nothing():
    insight = only(simulated("gpu with full memory beside it"), Kind.MEMORY)
    assert "node 0 used 96% of its memory" in insight.sentence
    assert insight.verdict is None


def test_a_rank_killed_for_want_of_memory():
    job = simulated("gpu with full memory beside it")
    job = job._replace(status="Failed", reason="RANK_KILLED", metrics=())
    assert report(job).bottleneck is MEMORY
    # The other node's memory had nothing to do with it.
    ours = [each for each in job.resources if each.name.startswith("node_memory")]
    roomy = [
        each._replace(
            node=1, points=tuple(point._replace(value=point.value / by) for point in each.points)
        )
        for each, by in ((each, 1 if each.name.endswith("total") else 5) for each in ours)
    ]
    both = job._replace(reason="OUT_OF_MEMORY", resources=(*job.resources, *roomy))
    (insight,) = (each for each in report(both).insights if each.kind is Kind.MEMORY)
    assert "node 0" in insight.sentence
    # One that failed otherwise is as any other: its GPU was busy.
    assert report(job._replace(reason="RANK_EXITED")).bottleneck is COMPUTE


def test_gpus_that_nothing_ran_on():
    job = simulated("gpu computes")
    loads = [s for s in job.resources if s.name == "gpu_load"]
    idle = loads[0]._replace(gpu=1, points=tuple(p._replace(value=0.0) for p in loads[0].points))
    given = job._replace(gpus=2, resources=(*job.resources, idle))
    assert "1 of the job's 2 GPUs was never used" in only(given, Kind.IDLE_GPUS).sentence
    # Of a node with more GPUs than the job was given, others may be anybody's.
    assert only(given._replace(gpus=1), Kind.IDLE_GPUS) is None


def test_gpus_that_idle_though_no_data_is_waited_for():
    insight = only(simulated("python between steps"), Kind.IDLE_GPUS)
    assert "the GPUs were idle 7" in insight.sentence
    assert ".item()" in insight.hint


def test_a_rank_that_printed_nothing():
    def job(*sizes, **more):
        logged = dict(enumerate(sizes))
        return Facts("j", ranks=len(sizes), ended_at=9.0, logged=logged, **more)

    insight = only(job(10, 10, 0, 10), Kind.QUIET_RANK)
    assert insight.sentence == "rank 2 printed nothing, unlike 3 others"
    assert "allranks job logs j --rank 2" in insight.hint
    # Many scripts print on rank 0 alone, or on one rank of each node.
    for usual in (job(10, 0, 0, 0), job(10, 0), job(9, 0, 9, 0), job(9, 9), job(0, 0, 0)):
        assert only(usual, Kind.QUIET_RANK) is None
    assert only(job(10, 10, 10, 0, aside=frozenset([3])), Kind.QUIET_RANK) is None
    assert only(job(10, 10, 0)._replace(ended_at=None), Kind.QUIET_RANK) is None


def test_a_rank_that_never_told_a_metric():
    told = tuple(Series("loss", (Point(1.0, 0.5, 0),), rank=rank) for rank in (0, 1, 3))
    job = Facts("j", ranks=4, ended_at=9.0, logged=dict.fromkeys(range(4), 9), metrics=told)
    assert only(job, Kind.QUIET_RANK).sentence == "rank 2 never logged loss, unlike 3 others"
    assert only(job._replace(metrics=told[:1]), Kind.QUIET_RANK) is None


def test_data_that_was_not_sharded():
    def job(each, size=600.0, ranks=4):
        found = []
        for rank in range(ranks):
            values = {"epoch": [0, 1, 2], "samples": [each, 2 * each, 3 * each]}
            values["dataset_size"] = [size]
            for name, points in values.items():
                found.append(Series(name, tuple(Point(1.0, float(v)) for v in points), rank=rank))
        return Facts("j", ranks=ranks, metrics=tuple(found))

    insight = only(job(600), Kind.UNSHARDED)
    assert insight.sentence == "each of the 4 ranks processed all 600 samples in every epoch"
    assert only(job(150), Kind.UNSHARDED) is None
    assert only(job(600, ranks=1), Kind.UNSHARDED) is None


def test_a_size_with_rdma_on_hosts_without():
    job = Facts(
        "j", nodes=2, hosts=("a", "b"), rdma=(False, False), size_with_rdma="Standard_ND40rs_v2"
    )
    assert "ND40rs_v2 has RDMA in its cloud, and 2 of 2" in only(job, Kind.NETWORK).sentence
    for other in (
        {"rdma": (True, True)},
        {"rdma": (None, None)},
        {"hosts": ("a", "a")},
        {"size_with_rdma": ""},
    ):
        assert only(job._replace(**other), Kind.NETWORK) is None


def test_all_points_are_there_of_each_metric_that_is_named() -> None:
    sources = (file.read_text() for file in Path(insights.__path__[0]).glob("*.py"))
    of_ranks = re.compile(r'(?:of_ranks\(|_by_rank\(job, )"(\w+)"')
    named = {name for source in sources for name in of_ranks.findall(source)}
    assert {"batch_time", "epoch", "dataset_size"} <= named <= {*MEASURED}
