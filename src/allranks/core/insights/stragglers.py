"""Rules for single ranks and GPUs: slow, idle, silent, or all given the same data."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low

from allranks.core.amounts import counted
from allranks.core.insights import evidence
from allranks.core.insights.bottleneck_rules import HARDLY_WAITS, UNEVEN, UNUSED
from allranks.core.insights.comparable_runs import ALIKE
from allranks.core.insights.evidence import Span
from allranks.core.insights.insight import Bottleneck, Insight, Kind
from allranks.core.insights.job_facts import Facts, epochs, samples

HALF_IDLE = 50.0
# The others may wait for a rank that uses this many times as much CPU. Rank 0 writes and prints
# more than the rest, but not half as much again over a whole run.
AWAITED = 1.5


def imbalance(job: Facts) -> Iterator[Insight]:
    if len(job.trainers) < 2 or job.distribution == "none":
        return
    slow = [*_slow_rank(job), *_larger_share(job)]
    if not slow:
        yield from _awaited(job)
    for rank, text, shown, hint in slow:
        yield Insight(
            Kind.IMBALANCE,
            f"rank {rank} {text}; the others wait for it",
            {"rank": rank, **shown},
            hint,
            verdict=Bottleneck.IMBALANCE,
        )


_SlowRank = tuple[int, str, dict[str, float | int | str], str]
_CHECK_NODE = "check its node for other load, and for slower CPUs, GPUs or disks"


def _slow_rank(job: Facts) -> Iterator[_SlowRank]:
    times = evidence.step_times(job)
    if len(times) != len(job.trainers):
        return
    rank = max(times, key=lambda other: (times[other].mean, -other))
    ratios = [
        times[rank][half] / median_low(halves[half] for halves in times.values()) for half in (0, 1)
    ]
    if min(ratios) >= UNEVEN:
        ratio = times[rank].mean / median_low(halves.mean for halves in times.values())
        text = f"takes {ratio:.2f} times as long per step as most ranks"
        yield rank, text, {"times_as_long": round(ratio, 3)}, _CHECK_NODE


def _larger_share(job: Facts) -> Iterator[_SlowRank]:
    counts = samples(job) if job.status == "Completed" else None
    if not counts:
        return
    rank = max(counts, key=lambda other: (counts[other], -other))
    usual = median_low(counts.values())
    if counts[rank] >= UNEVEN * usual:
        text = f"processed {counts[rank]:.0f} samples, most ranks {usual:.0f}"
        hint = "give every rank the same number of samples: use a sampler that pads or drops"
        yield rank, text, {"samples": counts[rank], "usual": usual}, hint


def _awaited(job: Facts) -> Iterator[Insight]:
    """A slow rank that step times do not show, since all ranks take as long as the slowest: it
    computes while the others wait. By how much it slows the job down is unknown."""
    used = evidence.computing(job)
    if len(used) != len(job.trainers) or min(usage.least for usage in used.values()) <= 0:
        return
    rank = max(used, key=lambda other: (used[other].mean, -other))
    usual = [median_low(usage[half] for usage in used.values()) for half in (0, 1)]
    if min(used[rank][half] / usual[half] for half in (0, 1)) < AWAITED:
        return
    ratio = used[rank].mean / median_low(usage.mean for usage in used.values())
    yield Insight(
        Kind.IMBALANCE,
        f"rank {rank} used {ratio:.2f} times as much CPU as most ranks, which may have "
        "waited for it",
        {"rank": rank, "times_as_much": round(ratio, 3)},
        f"{_CHECK_NODE}; while it runs: allranks job stacks {job.name}",
    )


# ---------------------------------------------------------------- GPUs, logs, data


def idle_gpus(job: Facts) -> Iterator[Insight]:
    ended = job.ranks_ended_at or job.ended_at
    if not job.gpus or job.started_at is None or ended is None:
        return
    whole = evidence.series_of(job, "gpu_load", "gpu", Span(job.started_at, ended))
    allocated, used = job.gpus * job.nodes, sum(load.most >= UNUSED for load in whole)
    if len(whole) >= allocated > used:
        idle = allocated - used
        yield Insight(
            Kind.IDLE_GPUS,
            f"{idle} of the job's {allocated} GPUs {'was' if idle == 1 else 'were'} never used",
            {"idle": idle, "given": allocated},
            "start one process per GPU (-p) and use the device LOCAL_RANK in the script, or "
            "request fewer GPUs (--gpus)",
        )
        return
    loads = evidence.gpus(job, "gpu_load", evidence.training(job))
    waits = evidence.waits(job)
    if not loads or max(load.mean for load in loads) > HALF_IDLE:
        return
    load = sum(load.mean for load in loads) / len(loads)
    if waits and max(wait.most for wait in waits.values()) > HARDLY_WAITS:
        return  # input_bound reports this
    if waits:
        hint = "use larger batches, synchronise less often (.item(), prints), and do less in Python"
    else:
        hint = "log the metrics batch_time and data_time to see whether the GPUs wait for data"
    sentence = f"the GPUs were idle {100 - load:.0f}% of the time"
    yield Insight(Kind.IDLE_GPUS, sentence, {"gpu_load": round(load, 1)}, hint)


def quiet_ranks(job: Facts) -> Iterator[Insight]:
    """Ranks without output, if most ranks print. In many scripts only rank 0 prints, or one rank
    per node."""
    if job.ended_at is None or not job.logged:
        return
    everyone = job.trainers
    loud = {rank for rank, size in job.logged.items() if size and rank in everyone}
    quiet = sorted(everyone - loud)
    if quiet and len(loud) > max(1, len(everyone) // 2):
        yield _quiet(job, quiet, "printed nothing", len(loud))
    for name in dict.fromkeys(metric.name for metric in job.metrics):
        reporting = set(job.of_ranks(name))
        missing = sorted(loud - reporting)
        if missing and len(reporting) > max(1, len(everyone) // 2):
            yield _quiet(job, missing, f"never logged {name}", len(reporting))


def _quiet(job: Facts, ranks: list[int], what: str, others: int) -> Insight:
    named = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    sentence = f"rank{'s' * (len(ranks) > 1)} {named} {what}, unlike {counted(others, 'other')}"
    hint = f"it may have been stuck; read its log: allranks job logs {job.name} --rank {ranks[0]}"
    return Insight(Kind.QUIET_RANK, sentence, {"ranks": named, "others": others}, hint)


def unsharded(job: Facts) -> Iterator[Insight]:
    """Every rank reads the whole data set, known from the metric `dataset_size`."""
    sizes = {p.value for points in job.of_ranks("dataset_size").values() for p in points}
    counts = samples(job)
    trained = epochs(job)
    if len(counts or ()) < 2 or len(sizes) != 1 or not counts or not trained:
        return
    size = sizes.pop()
    per_rank = [count / trained for count in counts.values()]
    if size > 0 and all(abs(count - size) <= ALIKE * size for count in per_rank):
        yield Insight(
            Kind.UNSHARDED,
            f"each of the {len(per_rank)} ranks processed all {size:.0f} samples in every epoch",
            {"samples": max(per_rank), "dataset_size": size, "ranks": len(per_rank)},
            "give each rank its share: DistributedSampler, dataset.shard(), `sharded` of an input",
            f"epochs up to {len(per_rank)} times as fast",
        )
