"""Rules for the bottleneck of a whole job: input, compute, processors or memory.

Thresholds are here with their reasons; docs/design/reports.md lists what these rules cannot see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median_low

from allranks.core.insights import evidence
from allranks.core.insights.evidence import LEAST, Halves, Span
from allranks.core.insights.insight import Bottleneck, Insight, Kind
from allranks.core.insights.job_facts import Facts

# Share of a step spent waiting for data. Below a tenth, a loader that prefetches well costs as
# much; from three tenths, removing the wait makes a run at least 1.4 times as fast. In between,
# either is possible.
WAITS, HARDLY_WAITS = 0.30, 0.10
# How much busier a GPU may be than the waiting of its rank allows: evaluation, sampling of the load
# and queued work. With more, the GPU did not wait for data.
SLACK = 0.15
# In percent: GPUs or CPUs that always have work, but for pauses between epochs.
BUSY = 85.0
# GPUs that wait for other ranks look busy, since NCCL spins, but draw only a third to a half of the
# power limit. Above POWER they waited for less than a third of the time.
POWER, EVEN = 0.85, 0.9
# Over at least LEAST steps, a difference of a quarter between ranks is not chance.
UNEVEN = 1.25
# A rank is named if it waits for data longer than most by this share of a step.
FAR = 0.25
# If less than half of the CPU load is the job's own, other load may be the limit.
OWN = 0.5
# Waiting ranks of these distributions look busy, since MPI polls.
POLL = ("mpi", "horovod")
# In percent: an unused GPU shows 0, or little for a desktop.
UNUSED = 5.0
# Share of a node's memory above which the kernel swaps and kills processes.
FULL, NEARLY_FULL = 0.95, 0.90
# Swapping makes steps several times as long; slower growth has other reasons.
SLOWED, STEADY, SWAPS = 1.5, 1.15, 2.0
# In percent: below this load there are CPUs for more DataLoader workers.
FREE_CPU = 60.0


# ---------------------------------------------------------------- input


def input_bound(job: Facts) -> Iterator[Insight]:
    waits = evidence.waits(job)
    span = evidence.training(job)
    share = evidence.awaited(job)
    if share is None or share.least < WAITS or not _idle_enough(job, waits, span):
        return
    times = evidence.step_times(job)
    step = median_low(times[rank].mean for rank in waits)
    shown: dict[str, float | int | str] = {
        "wait_share": round(share.mean, 3),
        "step_seconds": step,
        "data_seconds": step * share.mean,
        "ranks": len(waits),
    }
    sentence = f"ranks waited for data during {share.mean:.0%} of each step of {step:.3g} s"
    if (rank := _longest(waits)) is not None:
        shown["rank"] = rank
        sentence += f", rank {rank} the longest"
    if loads := evidence.gpus(job, "gpu_load", span):
        shown["gpu_load"] = round(min(load.mean for load in loads), 1)
        sentence += f"; a GPU was idle {100 - float(shown['gpu_load']):.0f}% of the time"
    cpu = evidence.cpu_load(job, span)
    if cpu is not None:
        shown["cpu"] = round(cpu, 1)
    gain = _input_gain(share.mean, step)
    yield Insight(Kind.INPUT, sentence, shown, _loader_hint(cpu, rank), gain, Bottleneck.INPUT)


def _longest(waits: Mapping[int, Halves]) -> int | None:
    """The rank that waits far longer than most, in both halves of the run."""
    rank = max(waits, key=lambda other: (waits[other].mean, -other))
    excess = [
        waits[rank][half] - median_low(halves[half] for halves in waits.values()) for half in (0, 1)
    ]
    return rank if min(excess) >= FAR else None


def _input_gain(share: float, step: float) -> str:
    if share > 0.95:
        return "more than 20 times as fast at best"
    rest = step * (1 - share)
    return f"up to {1 / (1 - share):.1f} times as fast: {rest:.3g} s per step instead of {step:.3g}"


def _loader_hint(cpu: float | None, rank: int | None) -> str:
    # If all loaders are equally slow, the one that is slowest by chance makes its rank wait.
    start = (
        "" if rank is None else f"check whether rank {rank}'s node reads more slowly; otherwise "
    )
    if cpu is not None and cpu <= FREE_CPU:
        return (
            f"{start}use more DataLoader workers (num_workers in PyTorch): {100 - cpu:.0f}% of the "
            "CPUs are free"
        )
    if cpu is not None and cpu >= BUSY:
        return (
            f"{start}preprocess the data once and store the result, decode it on the GPU, or "
            "request more CPUs per rank: the CPUs are busy, too"
        )
    return f"{start}use more DataLoader workers, or store the data preprocessed and on local disks"


def _idle_enough(job: Facts, waits: Mapping[int, Halves], span: Span | None) -> bool:
    """Whether a GPU was idle as long as its rank waited for data. A host that runs ahead of its GPU
    may wait for data while the GPU still works, and loses nothing."""
    loads = evidence.gpus(job, "gpu_load", span)
    if loads:
        longest = max(wait.mean for wait in waits.values())
        return min(load.mean for load in loads) <= 100 * (1 - longest + SLACK)
    # GPUs without samples may have been busy.
    return not _has_gpus(job, span)


def _has_gpus(job: Facts, span: Span | None) -> bool:
    """Whether the job has GPUs, or may have used some without requesting them."""
    return bool(job.gpus) or any(
        load.mean >= UNUSED for load in evidence.series_of(job, "gpu_load", "gpu", span)
    )


# ---------------------------------------------------------------- compute


def compute_bound(job: Facts) -> Iterator[Insight]:
    waits = evidence.waits(job)
    times = evidence.step_times(job)
    span = evidence.training(job)
    if not waits or max(wait.most for wait in waits.values()) > HARDLY_WAITS:
        return
    seconds = [second for halves in times.values() for second in halves]
    if max(seconds) > UNEVEN * min(seconds):
        return
    wait = max(wait.mean for wait in waits.values())
    busy = _busy_gpus(job, span) if _has_gpus(job, span) else _busy_cpus(job, span, len(waits))
    if busy is None:
        return
    device, load = busy
    yield Insight(
        Kind.COMPUTE,
        f"the {device} were busy {load:.0f}% of the time; waiting for data took {wait:.0%}",
        {"load": round(load, 1), "wait_share": round(wait, 3)},
        "the job uses its machines fully: use more or faster ones, lower precision or a cheaper "
        "model; `allranks report scaling` shows what more nodes gain",
        verdict=Bottleneck.COMPUTE,
    )


def _busy_gpus(job: Facts, span: Span | None) -> tuple[str, float] | None:
    loads = evidence.gpus(job, "gpu_load", span)
    if not loads or min(load.mean for load in loads) < BUSY:
        return None
    if job.ranks > 1 and not _at_full_power(job, span):
        return None
    return "GPUs", min(load.mean for load in loads)


def _at_full_power(job: Facts, span: Span | None) -> bool:
    power = _by_gpu(evidence.gpus(job, "gpu_power", span))
    limit = _by_gpu(evidence.gpus(job, "gpu_power_limit", span))
    complete = power.keys() == limit.keys() and bool(power)
    if not complete or any(power[gpu] < POWER * limit[gpu] for gpu in power):
        return False
    # If the others wait for a slow GPU, that one draws more power than they do.
    return min(power.values()) >= EVEN * max(power.values())


def _by_gpu(series: list[evidence.Evidence]) -> dict[tuple[int | None, int | None], float]:
    return {(each.series.node, each.series.gpu): each.mean for each in series}


def _busy_cpus(job: Facts, span: Span | None, reporting: int) -> tuple[str, float] | None:
    if job.ranks > 1 and (job.distribution in POLL or reporting != len(job.trainers)):
        return None
    load = evidence.cpu_load(job, span)
    own = evidence.own_share(job, span)
    if load is None or load < BUSY or own is None or own < OWN:
        return None
    return "CPUs", load


def saturated(job: Facts) -> Iterator[Insight]:
    """GPUs or CPUs that were busy in both halves of the run, if no metric says how long steps wait
    for data. Busy CPUs may compute or prepare data; which of the two is unknown."""
    span = evidence.training(job)
    if span is None or evidence.waits(job):
        return
    on_gpus = _has_gpus(job, span)
    if on_gpus and not evidence.gpus(job, "gpu_load", span):
        return  # GPUs without samples may have been busier than the CPUs
    if on_gpus and (load := _in_both_halves(span, lambda half: _busy_gpus(job, half))):
        yield Insight(
            Kind.COMPUTE,
            f"the GPUs were busy {load:.0f}% of the time",
            {"load": round(load, 1)},
            "use more or faster GPUs, lower precision or a cheaper model; "
            "`allranks report scaling` shows what more nodes gain",
            verdict=Bottleneck.COMPUTE,
        )
    elif load := _in_both_halves(span, lambda half: _busy_cpus(job, half, len(job.trainers))):
        idle = evidence.gpus(job, "gpu_load", span)
        gpu_mean = sum(load.mean for load in idle) / len(idle) if idle else None
        if gpu_mean is not None and gpu_mean > 100 * SLACK + (100 - BUSY):
            return  # the GPUs were busy enough to be the limit as well
        gpus = "" if gpu_mean is None else f"; the GPUs, busy {gpu_mean:.0f}%, waited for them"
        yield Insight(
            Kind.PROCESSORS,
            f"the CPUs were busy {load:.0f}% of the time{gpus}",
            {"load": round(load, 1)}
            | ({} if gpu_mean is None else {"gpu_load": round(gpu_mean, 1)}),
            "use more CPUs or nodes; the metrics batch_time and data_time would show whether the "
            "CPUs prepare data or compute",
            verdict=Bottleneck.PROCESSORS,
        )


def _in_both_halves(span: Span, busy: Callable[[Span], tuple[str, float] | None]) -> float | None:
    """The mean load, where each half of the run is busy by itself."""
    first, second = (busy(half) for half in span.halves)
    return None if first is None or second is None else (first[1] + second[1]) / 2


# ---------------------------------------------------------------- memory


def memory_pressure(job: Facts) -> Iterator[Insight]:
    nodes = list(evidence.memory(job))
    fullest = max((memory.points[-1].value for memory in nodes), default=0.0)
    for memory in nodes:
        late = memory.points[len(memory.points) // 2 :]
        share, node = evidence.mean(late), memory.node
        at_end = memory.points[-1].value
        # It may fill faster than it is sampled.
        starved = job.reason == "OUT_OF_MEMORY" and at_end == fullest
        killed = starved or (job.reason == "RANK_KILLED" and at_end >= FULL)
        if share < NEARLY_FULL and not killed:
            continue
        slowed = _slowed(job, memory)
        shown: dict[str, float | int | str] = {"memory_share": round(max(share, at_end), 3)}
        sentence = f"node {node} used {max(share, at_end):.0%} of its memory"
        if slowed:
            shown["slowed"] = round(slowed, 2)
            sentence += f", and steps took {slowed:.1f} times as long from then on"
        if killed:
            sentence += " when a rank was killed"
        yield Insight(
            Kind.MEMORY,
            sentence,
            shown,
            "use fewer DataLoader workers or smaller batches, keep less data in memory, use fewer "
            "processes per node, or nodes with more memory",
            f"up to {slowed:.1f} times as fast, as before memory was full" if slowed else None,
            Bottleneck.MEMORY if slowed or killed else None,
        )


def _slowed(job: Facts, memory: evidence.Memory) -> float | None:
    """How many times as long steps took once memory was full and the node swapped; None without
    evidence that memory was the reason."""
    roomy = [point.at for point in memory.points if point.value < NEARLY_FULL]
    full = [point.at for point in memory.points if point.value >= FULL]
    if not roomy or not full or max(roomy) > min(full):
        return None
    before = Span(0.0, max(roomy))
    after = Span(min(full), max(full))
    ratios = []
    for points in job.of_ranks("batch_time").values():
        first = before.of(evidence.settled(points))
        then = after.of(points)
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
    """Bytes per second that the node's disks read and wrote."""
    names = ("node_disk_read", "node_disk_write")
    readings = [
        span.of(series.sound)
        for series in job.resources
        if series.name in names and series.node == node and series.rank is None
    ]
    return sum(evidence.mean(points) for points in readings if points)
