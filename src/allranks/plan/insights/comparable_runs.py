"""Whether runs of different sizes did the same work: else their times say nothing of scaling.

Two things have to hold. The runs were *asked* for the same: code, command (but for words that only
say how large the job is), inputs, variables, environment. And they *did* the same: as many epochs,
and as many samples in all. The second is what a script gets wrong that divides its epochs by the
number of ranks while every rank reads the whole data set: in all as many samples, in a quarter of
the epochs, and the model has seen the data a quarter as often.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from allranks.plan.insights.job_facts import Facts, counted, epochs, samples

# Samplers fill up the last batch of each rank or leave it out, and not every step is printed.
ALIKE = 0.05

# Words of launchers that say how large a job is; the run's own size is known better.
_SIZES = re.compile(
    r"(?<!\S)(--(nnodes|nproc[-_]per[-_]node|num[-_](nodes|machines|processes|gpus))"
    r"|-np)[ =]\S+"
)
# Metrics that a script tells at every step, or at every so many.
_STEPWISE = ("batch_time", "data_time", "throughput", "samples_per_second", "it_per_second")


class Same(StrEnum):
    """Whether the work was equal."""

    EQUAL = "equal"
    ASSUMED = "assumed"
    UNEQUAL = "not equal"


class Work(NamedTuple):
    """The verdict and its reasons, each a sentence. ``done``: what the runs did, not only what they
    were asked for, tells that it was not equal."""

    same: Same
    reasons: tuple[str, ...] = ()
    done: bool = False


def compared(jobs: Sequence[Facts]) -> Work:
    """Whether these runs did the same work as the first."""
    first, others = jobs[0], jobs[1:]
    unlike = tuple(reason for other in others for reason in _done_unlike(first, other))
    asked = _asked_unlike(jobs)
    if unlike or asked:
        return Work(Same.UNEQUAL, (*unlike, *asked), bool(unlike))
    unknown = [reason for other in others if (reason := _unknown(first, other))]
    if any(job.asked.get("code") is None for job in jobs):
        unknown.append("which code ran is not in the record of each")
    return Work(Same.ASSUMED if unknown else Same.EQUAL, tuple(dict.fromkeys(unknown)))


def command(text: str) -> str:
    """A command without what only says how large the job is."""
    return " ".join(_SIZES.sub("", text).split())


def in_all(job: Facts) -> float | None:
    """How many samples all its ranks went through together."""
    each = samples(job)
    return sum(each.values()) if each else None


def _asked_unlike(jobs: Sequence[Facts]) -> tuple[str, ...]:
    """Sentences on what of the runs was asked for otherwise."""
    found = []
    for what in sorted({name for job in jobs for name in job.asked}):
        known = [job for job in jobs if job.asked.get(what) is not None]
        was = known[0].asked[what] if known else None
        unlike = [job.name for job in known if job.asked[what] != was]
        if unlike:
            found.append(f"not the same {what} as {known[0].name}: {', '.join(unlike)}")
    return tuple(found)


def _done_unlike(one: Facts, other: Facts) -> Iterator[str]:
    """Sentences on what ``other`` did more or less of than ``one``."""
    before, after = epochs(one), epochs(other)
    if before is not None and after is not None and not _alike(before, after):
        said = f"{other.name} trained {after:g} epochs and {one.name} {before:g}"
        if _alike(before * len(one.trainers), after * len(other.trainers)):
            said += ": the epochs were divided by the number of ranks"
        yield said
    here, there = _per_epoch(one, before), _per_epoch(other, after)
    if here and there and one.trainers != other.trainers and _alike(here, there):
        yield (
            f"each rank of {other.name} went through as many samples in an epoch ({there:.0f}) as "
            f"one of {one.name}: the data was not sharded, every rank had the whole set"
        )
        return
    first, second = in_all(one), in_all(other)
    if first and second and not _alike(first, second):
        yield f"{other.name} went through {second:.0f} samples and {one.name} {first:.0f}"


def _unknown(one: Facts, other: Facts) -> str:
    """What is not known of the work of both; empty when it is known to be equal."""
    if epochs(one) is None or epochs(other) is None:
        return "how many epochs they trained is not in the record"
    if in_all(one) is not None and in_all(other) is not None:
        return ""
    before, after = _steps(one, other)
    if before and after and _alike(before * len(one.trainers), after * len(other.trainers)):
        return ""
    return "how many samples they went through is not in the record"


def _per_epoch(job: Facts, count: float | None) -> float | None:
    """The samples of an epoch of each rank, where all have as many."""
    each = list((samples(job) or {}).values())
    if not each or not count or not _alike(min(each), max(each)):
        return None
    return max(each) / count


def _steps(one: Facts, other: Facts) -> tuple[float, float]:
    """How many steps a rank of each took, as the same metric counts them. Only of use to say that
    the work was equal: a batch may be that of a rank or be shared by all."""
    for name in _STEPWISE:
        found = [_reached(job, name) for job in (one, other)]
        if all(found):
            return found[0], found[1]
    return 0.0, 0.0


def _reached(job: Facts, name: str) -> float:
    told = job.of_ranks(name).values()
    return max((counted(p.step for p in at if p.step is not None) for at in told), default=0.0)


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(abs(one), abs(other))
