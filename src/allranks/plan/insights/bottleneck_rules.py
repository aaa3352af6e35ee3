"""What holds a whole job back: waiting for data, computing, want of memory.

Thresholds stand here with their reasons; docs/design/reports.md tells what these rules cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median_low

from allranks.plan.insights import evidence
from allranks.plan.insights.evidence import LEAST, Halves, Span
from allranks.plan.insights.insight import Bottleneck, Insight, Kind
from allranks.plan.insights.job_facts import Facts

# Part of a step that is a wait for data. Under a tenth it is what a loader costs that reads ahead
# well; from three tenths on taking it away makes a run at least 1.4 times as fast, more than any
# other single change. Between them it may be either.
WAITS, HARDLY_WAITS = 0.30, 0.10
# How much busier a GPU may have been than a rank that waits lets it be: evaluation, sampling of
# the load, work that was queued before. More than that, and the GPU did not wait for the data.
SLACK = 0.15
# In percent: what a GPU or processors show that always have work, with pauses between epochs.
BUSY = 85.0
# GPUs of several ranks look busy, too, while they wait for one another: NCCL spins. They take far
# less power then than when they compute (a third to a half of the limit, to all of it), so that
# above this they waited for less than a third of the time.
POWER, EVEN = 0.85, 0.9
# Ranks whose steps differ by a quarter do not differ by chance over so many steps.
UNEVEN = 1.25
# Of a step: how much longer than most a rank waits for data that is worth naming.
FAR = 0.25
# Where the processors did something else for more than half, it is not known what they waited for.
OWN = 0.5
# Waiting ranks of these look busy: their MPI polls.
POLL = ("mpi", "horovod")
# In percent: a GPU that nothing runs on shows 0, but for what a desktop draws.
UNUSED = 5.0
# Of a node's memory. The kernel keeps some for itself and begins to swap and to kill above this.
FULL, NEARLY_FULL = 0.95, 0.90
# Swapping makes steps several times as long; what grows more slowly grows for another reason.
SLOWED, STEADY, SWAPS = 1.5, 1.15, 2.0
# In percent: below this the processors have room for more workers of a loader.
FREE_CPU = 60.0


# ---------------------------------------------------------------- input


def input_bound(job: Facts) -> Iterator[Insight]:
    found, span = evidence.waits(job), evidence.training(job)
    share = evidence.awaited(job)
    if share is None or share.least < WAITS or not _idle_enough(job, found, span):
        return
    times = evidence.step_times(job)
    step = median_low(times[rank].mean for rank in found)
    shown: dict[str, float | int | str] = {
        "wait_share": round(share.mean, 3),
        "step_seconds": step,
        "data_seconds": step * share.mean,
        "ranks": len(found),
    }
    said = f"{share.mean:.0%} of each step of {step:.3g} s was a wait for data"
    if (rank := _longest(found)) is not None:
        shown["rank"] = rank
        said += f", mostly that of rank {rank}"
    if loads := evidence.gpus(job, "gpu_load", span):
        shown["gpu_load"] = round(min(each.mean for each in loads), 1)
        said += f", and a GPU idled {100 - float(shown['gpu_load']):.0f}% of the time"
    cpu = evidence.cpu_load(job, span)
    if cpu is not None:
        shown["cpu"] = round(cpu, 1)
    gain = _faster(share.mean, step)
    yield Insight(Kind.INPUT, said, shown, _loader(cpu, rank), gain, Bottleneck.INPUT)


def _longest(found: Mapping[int, Halves]) -> int | None:
    """The rank that waits far longer than most, in both halves."""
    rank = max(found, key=lambda each: (found[each].mean, -each))
    apart = [
        found[rank][half] - median_low(each[half] for each in found.values()) for half in (0, 1)
    ]
    return rank if min(apart) >= FAR else None


def _faster(share: float, step: float) -> str:
    if share > 0.95:
        return "up to more than 20 times as fast"
    left = step * (1 - share)
    return f"up to {1 / (1 - share):.1f} times as fast: {left:.3g} s a step in place of {step:.3g}"


def _loader(cpu: float | None, rank: int | None) -> str:
    if rank is not None:
        # Where all loaders are as slow, the one that is slowest by a hair waits for all of them.
        also = f"see whether rank {rank}'s node reads more slowly than others; else "
    else:
        also = ""
    if cpu is not None and cpu <= FREE_CPU:
        free = f"{100 - cpu:.0f}% of the processors are free"
        return f"{also}read ahead: {free} for more workers of the loader (num_workers in PyTorch)"
    if cpu is not None and cpu >= BUSY:
        return (
            f"{also}prepare the data once and keep it prepared, decode it on the GPU, or ask for "
            "more processors a rank: these are busy as well"
        )
    return f"{also}read ahead with more workers of the loader, or keep the data nearer and prepared"


def _idle_enough(job: Facts, found: Mapping[int, Halves], span: Span | None) -> bool:
    """Whether a GPU idled as a rank must let it that waits for data. A host that runs ahead of its
    GPU waits for data while the GPU works: it loses nothing."""
    loads = evidence.gpus(job, "gpu_load", span)
    if loads:
        most = max(each.mean for each in found.values())
        return min(each.mean for each in loads) <= 100 * (1 - most + SLACK)
    # GPUs that nobody watched may have been busy.
    return not _has_gpus(job, span)


def _has_gpus(job: Facts, span: Span | None) -> bool:
    """Whether it has GPUs, or may have taken some that it did not ask for."""
    return bool(job.gpus) or any(
        each.mean >= UNUSED for each in evidence.seen(job, "gpu_load", "gpu", span)
    )


# ---------------------------------------------------------------- compute


def compute_bound(job: Facts) -> Iterator[Insight]:
    found, times, span = evidence.waits(job), evidence.step_times(job), evidence.training(job)
    if not found or max(each.most for each in found.values()) > HARDLY_WAITS:
        return
    seconds = [each for halves in times.values() for each in halves]
    if max(seconds) > UNEVEN * min(seconds):
        return
    wait = max(each.mean for each in found.values())
    busy = _busy_gpus(job, span) if _has_gpus(job, span) else _busy_cpus(job, span, len(found))
    if busy is None:
        return
    what, load = busy
    yield Insight(
        Kind.COMPUTE,
        f"{what} were busy {load:.0f}% of the time, and {wait:.0%} of it was a wait for data",
        {"load": round(load, 1), "wait_share": round(wait, 3)},
        "it computes as fast as these machines do: more or faster ones, lower precision, or a "
        "cheaper model make it faster; `allranks report scaling` tells what more nodes bring",
        verdict=Bottleneck.COMPUTE,
    )


def _busy_gpus(job: Facts, span: Span | None) -> tuple[str, float] | None:
    loads = evidence.gpus(job, "gpu_load", span)
    if not loads or min(each.mean for each in loads) < BUSY:
        return None
    if job.ranks > 1 and not _at_full_power(job, span):
        return None
    return "the GPUs", min(each.mean for each in loads)


def _at_full_power(job: Facts, span: Span | None) -> bool:
    power = _by_gpu(evidence.gpus(job, "gpu_power", span))
    limit = _by_gpu(evidence.gpus(job, "gpu_power_limit", span))
    known = power.keys() == limit.keys() and bool(power)
    if not known or any(power[gpu] < POWER * limit[gpu] for gpu in power):
        return False
    # Of GPUs that wait for a slow one, that one draws the most.
    return min(power.values()) >= EVEN * max(power.values())


def _by_gpu(found: list[evidence.Evidence]) -> dict[tuple[int | None, int | None], float]:
    return {(each.series.node, each.series.gpu): each.mean for each in found}


def _busy_cpus(job: Facts, span: Span | None, told: int) -> tuple[str, float] | None:
    if job.ranks > 1 and (job.distribution in POLL or told != len(job.trainers)):
        return None
    load, own = evidence.cpu_load(job, span), evidence.own_share(job, span)
    if load is None or load < BUSY or own is None or own < OWN:
        return None
    return "the processors", load


def saturated(job: Facts) -> Iterator[Insight]:
    """What always had work, in both halves of the run, where no metric says how long a step waits
    for data. Busy processors may compute or prepare data: which of the two is not known."""
    span = evidence.training(job)
    if span is None or evidence.waits(job):
        return
    on_gpus = _has_gpus(job, span)
    if on_gpus and not evidence.gpus(job, "gpu_load", span):
        return  # GPUs that nobody watched may have been busier than the processors
    if on_gpus and (found := _in_both_halves(span, lambda half: _busy_gpus(job, half))):
        yield Insight(
            Kind.COMPUTE,
            f"the GPUs were busy {found:.0f}% of the time",
            {"load": round(found, 1)},
            "more or faster GPUs, lower precision, or a cheaper model make it faster; "
            "`allranks report scaling` shows what more nodes bring",
            verdict=Bottleneck.COMPUTE,
        )
    elif found := _in_both_halves(span, lambda half: _busy_cpus(job, half, len(job.trainers))):
        idle = evidence.gpus(job, "gpu_load", span)
        load = sum(each.mean for each in idle) / len(idle) if idle else None
        if load is not None and load > 100 * SLACK + (100 - BUSY):
            return  # the GPUs had so much to do that either may be the limit
        said = f"the processors were busy {found:.0f}% of the time"
        beside = "" if load is None else f", and the GPUs {load:.0f}%: these waited for them"
        yield Insight(
            Kind.PROCESSORS,
            said + beside,
            {"load": round(found, 1)} | ({} if load is None else {"gpu_load": round(load, 1)}),
            "more processors or nodes make it faster; the metrics batch_time and data_time would "
            "show whether they prepare data or compute",
            verdict=Bottleneck.PROCESSORS,
        )


def _in_both_halves(span: Span, busy: Callable[[Span], tuple[str, float] | None]) -> float | None:
    """The mean load, where each half of the run is busy by itself."""
    first, second = (busy(half) for half in span.halves)
    return None if first is None or second is None else (first[1] + second[1]) / 2


# ---------------------------------------------------------------- memory


def memory_pressure(job: Facts) -> Iterator[Insight]:
    for each in evidence.memory(job):
        late = each.points[len(each.points) // 2 :]
        share, node = evidence.mean(late), each.node
        at_end = each.points[-1].value
        killed = job.reason == "OUT_OF_MEMORY" or (job.reason == "RANK_KILLED" and at_end >= FULL)
        if share < NEARLY_FULL and not killed:
            continue
        slowed = _slowed(job, each)
        shown: dict[str, float | int | str] = {"memory_share": round(max(share, at_end), 3)}
        said = f"{max(share, at_end):.0%} of the memory of node {node} was in use"
        if slowed:
            shown["slowed"] = round(slowed, 2)
            said += f", and steps took {slowed:.1f} times as long from then on"
        if killed:
            said += " when a rank was killed"
        yield Insight(
            Kind.MEMORY,
            said,
            shown,
            "fewer workers of the loader or smaller batches, less kept in memory, more nodes with "
            "fewer processes each, or nodes with more memory",
            f"steps as short as before: up to {slowed:.1f} times as fast" if slowed else None,
            Bottleneck.MEMORY if slowed or killed else None,
        )


def _slowed(job: Facts, memory: evidence.Memory) -> float | None:
    """How many times as long steps took once the memory was full and the disk had to help; None
    where nothing shows that they did for want of memory."""
    roomy = [point.at for point in memory.points if point.value < NEARLY_FULL]
    full = [point.at for point in memory.points if point.value >= FULL]
    if not roomy or not full or max(roomy) > min(full):
        return None
    before, after = Span(0.0, max(roomy)), Span(min(full), max(full))
    ratios = []
    for points in job.of_ranks("batch_time").values():
        first, then = before.of(evidence.settled(points)), after.of(points)
        if len(first) < LEAST // 2 or len(then) < LEAST // 2:
            continue
        middle = len(first) // 2
        if evidence.mean(first[middle:]) > STEADY * evidence.mean(first[:middle]):
            return None
        ratios.append(evidence.mean(then) / evidence.mean(first))
    swaps = _disk(job, memory.node, after) >= SWAPS * max(_disk(job, memory.node, before), 1e-9)
    slowed = median_low(ratios) if ratios else 0.0
    return slowed if slowed >= SLOWED and swaps else None


def _disk(job: Facts, node: int | None, span: Span) -> float:
    """Bytes a second that the node's disks read and wrote."""
    names = [evidence.of_node(job, name) for name in ("disk_read", "disk_write")]
    found = [
        span.of(each.sound)
        for each in job.resources
        if each.name in names and each.node == node and each.rank is None
    ]
    return sum(evidence.mean(points) for points in found if points)
