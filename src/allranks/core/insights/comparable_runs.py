"""Whether runs of different sizes did the same work; otherwise their times do not show scaling.

The *requests* must be equal: code, command (without arguments for the job's size), inputs,
variables, environment. And the *results* must be equal: the same number of epochs, and the same
total of samples. A common mistake is to divide the epochs by the number of ranks while every rank
reads the whole data set: the total of samples is the same, but the model trains fewer epochs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from allranks.core.insights.job_facts import STEPWISE, Facts, counted, epochs, samples

# Tolerance: samplers pad or drop the last batch of each rank, and not every step is printed.
ALIKE = 0.05

# Launcher options for the size of a job.
_SIZES = re.compile(
    r"(?<!\S)(--(nnodes|nproc[-_]per[-_]node|num[-_](nodes|machines|processes|gpus))"
    r"|-np)[ =]\S+"
)


class Same(StrEnum):
    """Whether the work was equal."""

    EQUAL = "equal"
    ASSUMED = "assumed"
    UNEQUAL = "not equal"


class Work(NamedTuple):
    """The verdict and its reasons as sentences. ``done``: the results differ, not only the
    requests."""

    same: Same
    reasons: tuple[str, ...] = ()
    done: bool = False


def compared(jobs: Sequence[Facts]) -> Work:
    """Whether these runs did the same work as the first."""
    first, others = jobs[0], jobs[1:]
    results = tuple(reason for other in others for reason in _different_results(first, other))
    requests = _different_requests(jobs)
    if results or requests:
        return Work(Same.UNEQUAL, (*results, *requests), bool(results))
    unknown = [reason for other in others if (reason := _unknown(first, other))]
    if any(job.request.get("code") is None for job in jobs):
        unknown.append("the code of some runs is not recorded")
    return Work(Same.ASSUMED if unknown else Same.EQUAL, tuple(dict.fromkeys(unknown)))


def command(text: str) -> str:
    """A command without launcher options for the size of the job."""
    return " ".join(_SIZES.sub("", text).split())


def in_all(job: Facts) -> float | None:
    """The samples that all ranks processed together, if known."""
    by_rank = samples(job)
    return sum(by_rank.values()) if by_rank else None


def _different_requests(jobs: Sequence[Facts]) -> tuple[str, ...]:
    """Sentences on the parts of the requests that differ."""
    sentences = []
    for part in sorted({name for job in jobs for name in job.request}):
        recorded = [job for job in jobs if job.request.get(part) is not None]
        different = [job.name for job in recorded if job.request[part] != recorded[0].request[part]]
        if different:
            sentences.append(f"{part} differs from {recorded[0].name}: {', '.join(different)}")
    return tuple(sentences)


def _different_results(one: Facts, other: Facts) -> Iterator[str]:
    """Sentences on what ``other`` did more or less of than ``one``."""
    before = epochs(one)
    after = epochs(other)
    if before is not None and after is not None and not _alike(before, after):
        sentence = f"{other.name} trained {after:g} epochs and {one.name} {before:g}"
        if _alike(before * len(one.trainers), after * len(other.trainers)):
            sentence += ": the epochs were divided by the number of ranks"
        yield sentence
    mine = _per_epoch(one, before)
    theirs = _per_epoch(other, after)
    if mine and theirs and one.trainers != other.trainers and _alike(mine, theirs):
        yield (
            f"each rank of {other.name} processed as many samples per epoch ({theirs:.0f}) as one "
            f"of {one.name}: the data is not sharded, every rank reads the whole data set"
        )
        return
    first = in_all(one)
    second = in_all(other)
    if first and second and not _alike(first, second):
        yield f"{other.name} processed {second:.0f} samples and {one.name} {first:.0f}"


def _unknown(one: Facts, other: Facts) -> str:
    """What is unknown about the work of both; empty if it is known to be equal."""
    if epochs(one) is None or epochs(other) is None:
        return "the number of epochs is not recorded"
    if in_all(one) is not None and in_all(other) is not None:
        return ""
    before, after = _steps(one, other)
    if before and after and _alike(before * len(one.trainers), after * len(other.trainers)):
        return ""
    return "the number of samples is not recorded"


def _per_epoch(job: Facts, count: float | None) -> float | None:
    """The samples of each rank in an epoch, if equal for all ranks."""
    counts = list((samples(job) or {}).values())
    if not counts or not count or not _alike(min(counts), max(counts)):
        return None
    return max(counts) / count


def _steps(one: Facts, other: Facts) -> tuple[float, float]:
    """The steps of a rank in both runs, from the same metric. They can only confirm equal work: a
    batch may be that of one rank or be shared by all."""
    counts = ((_reached(one, name), _reached(other, name)) for name in STEPWISE)
    return next((pair for pair in counts if all(pair)), (0.0, 0.0))


def _reached(job: Facts, name: str) -> float:
    series = job.of_ranks(name).values()
    return max((counted(p.step for p in at if p.step is not None) for at in series), default=0.0)


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(abs(one), abs(other))
