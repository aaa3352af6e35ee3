"""What is odd about some ranks or GPUs of a job: slower, idle, silent, or given the same data."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low

from allranks.plan.amounts import counted
from allranks.plan.insights import evidence
from allranks.plan.insights.bottleneck_rules import HARDLY_WAITS, UNEVEN, UNUSED
from allranks.plan.insights.comparable_runs import ALIKE
from allranks.plan.insights.evidence import Span
from allranks.plan.insights.insight import Bottleneck, Insight, Kind
from allranks.plan.insights.job_facts import Facts, epochs, samples

HALF_IDLE = 50.0
# How much more than the others a rank computes that these wait for. Rank 0 writes and prints more
# than the rest, but not half as much again for the whole of a run.
AWAITED = 1.5


def imbalance(job: Facts) -> Iterator[Insight]:
    if len(job.trainers) < 2 or job.distribution == "none":
        return
    told = [*_slow_rank(job), *_larger_share(job)]
    if not told:
        yield from _awaited(job)
    for rank, said, shown, hint in told:
        yield Insight(
            Kind.IMBALANCE,
            f"rank {rank} {said}; the others wait for it",
            {"rank": rank, **shown},
            hint,
            verdict=Bottleneck.IMBALANCE,
        )


_Odd = tuple[int, str, dict[str, float | int | str], str]
_LOOK = "look at what else runs on its node, and whether its processors, GPU and disk are as fast"


def _slow_rank(job: Facts) -> Iterator[_Odd]:
    times = evidence.step_times(job)
    if len(times) != len(job.trainers):
        return
    rank = max(times, key=lambda each: (times[each].mean, -each))
    ratios = [
        times[rank][half] / median_low(each[half] for each in times.values()) for half in (0, 1)
    ]
    if min(ratios) >= UNEVEN:
        ratio = times[rank].mean / median_low(each.mean for each in times.values())
        said = f"takes {ratio:.2f} times as long for a step as most ranks"
        yield rank, said, {"times_as_long": round(ratio, 3)}, _LOOK


def _larger_share(job: Facts) -> Iterator[_Odd]:
    counts = samples(job) if job.status == "Completed" else None
    if not counts:
        return
    rank, usual = max(counts, key=lambda each: (counts[each], -each)), median_low(counts.values())
    if counts[rank] >= UNEVEN * usual:
        said = f"went through {counts[rank]:.0f} samples, most ranks through {usual:.0f}"
        shown = {"samples": counts[rank], "usual": usual}
        yield rank, said, {**shown}, "give every rank as many: a sampler that pads or drops"


def _awaited(job: Facts) -> Iterator[Insight]:
    """Whose slowness no time of a step tells, because each is as long as the slowest's: it computes
    while the others wait for it. How much it holds the job back is not known from that."""
    used = evidence.computing(job)
    if len(used) != len(job.trainers) or min(each.least for each in used.values()) <= 0:
        return
    rank = max(used, key=lambda each: (used[each].mean, -each))
    usual = [median_low(each[half] for each in used.values()) for half in (0, 1)]
    if min(used[rank][half] / usual[half] for half in (0, 1)) < AWAITED:
        return
    ratio = used[rank].mean / median_low(each.mean for each in used.values())
    yield Insight(
        Kind.IMBALANCE,
        f"rank {rank} computed {ratio:.2f} times as much as most ranks, which may have waited "
        "for it",
        {"rank": rank, "times_as_much": round(ratio, 3)},
        f"{_LOOK}; while it runs: allranks job stacks {job.name}",
    )


# ---------------------------------------------------------------- GPUs, logs, data


def idle_gpus(job: Facts) -> Iterator[Insight]:
    ended = job.ranks_ended_at or job.ended_at
    if not job.gpus or job.started_at is None or ended is None:
        return
    whole = evidence.seen(job, "gpu_load", "gpu", Span(job.started_at, ended))
    given, used = job.gpus * job.nodes, sum(each.most >= UNUSED for each in whole)
    if len(whole) >= given > used:
        idle = given - used
        yield Insight(
            Kind.IDLE_GPUS,
            f"{idle} of the job's {given} GPUs {'was' if idle == 1 else 'were'} never used",
            {"idle": idle, "given": given},
            "one process for each GPU (-p), and in the script the device of LOCAL_RANK; or ask "
            "for fewer (--gpus)",
        )
        return
    loads, found = evidence.gpus(job, "gpu_load", evidence.training(job)), evidence.waits(job)
    if not loads or max(each.mean for each in loads) > HALF_IDLE:
        return
    load = sum(each.mean for each in loads) / len(loads)
    if found and max(each.most for each in found.values()) > HARDLY_WAITS:
        return  # it waits for data: that is the other rule's to say
    if found:
        hint = "larger batches, fewer waits for the GPU's results (.item(), prints), less Python"
    else:
        hint = "a metric data_time beside batch_time would tell whether they wait for data"
    yield Insight(
        Kind.IDLE_GPUS, f"the GPUs idled {100 - load:.0f}%", {"gpu_load": round(load, 1)}, hint
    )


def quiet_ranks(job: Facts) -> Iterator[Insight]:
    """Where most ranks print and some do not. That rank 0 alone prints, or one of each node, is
    how many scripts are."""
    if job.ended_at is None or not job.logged:
        return
    everyone = job.trainers
    loud = {rank for rank, size in job.logged.items() if size and rank in everyone}
    quiet = sorted(everyone - loud)
    if quiet and len(loud) > max(1, len(everyone) // 2):
        yield _quiet(job, quiet, "printed nothing", len(loud))
    for name in dict.fromkeys(each.name for each in job.metrics):
        told = set(job.of_ranks(name))
        missing = sorted(loud - told)
        if missing and len(told) > max(1, len(everyone) // 2):
            yield _quiet(job, missing, f"never told its {name}", len(told))


def _quiet(job: Facts, ranks: list[int], what: str, others: int) -> Insight:
    named = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    said = f"rank{'s' * (len(ranks) > 1)} {named} {what}, unlike {counted(others, 'other')}"
    hint = f"what it did: allranks job logs {job.name} --rank {ranks[0]}; it may have been stuck"
    return Insight(Kind.QUIET_RANK, said, {"ranks": named, "others": others}, hint)


def unsharded(job: Facts) -> Iterator[Insight]:
    """Where the size of the whole set is told: `dataset_size`."""
    sizes = {p.value for points in job.of_ranks("dataset_size").values() for p in points}
    counts, trained = samples(job), epochs(job)
    if len(counts or ()) < 2 or len(sizes) != 1 or not counts or not trained:
        return
    size, each = sizes.pop(), [count / trained for count in counts.values()]
    if size > 0 and all(abs(count - size) <= ALIKE * size for count in each):
        yield Insight(
            Kind.UNSHARDED,
            f"every one of the {len(each)} ranks went through all {size:.0f} samples in an epoch",
            {"samples": max(each), "dataset_size": size, "ranks": len(each)},
            "give each rank its share: DistributedSampler, dataset.shard(), `sharded` of an input",
            f"epochs {len(each)} times as short",
        )
