"""Does a job hang? Decided from what every node says of its ranks. Pure.

Slow is not stuck: as long as any rank makes progress, others may wait for it. And busy is not
progress: a rank that polls for its peers uses a whole processor. Of those only their stacks tell.
docs/design/hangs.md has the rules and what they were measured against.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from math import inf
from typing import NamedTuple

from allranks.plan.amounts import counted
from allranks.plan.attempt_end import Failure
from allranks.plan.diagnosis import stacks
from allranks.plan.diagnosis.stacks import Process
from allranks.statuses import Reason

# Of a CPU: what a process that only waits does not use.
BUSY = 0.05
# Seconds by which two looks at a clock may differ.
_SLACK = 1.5


class Rank(NamedTuple):
    """Seconds since a rank last printed something, since a process of it computed, since it moved
    data (disks, connections), and since a GPU of its node did anything."""

    quiet: float
    idle: float
    still: float
    gpu: float = inf


class Suspicion(Enum):
    """What is to be looked at: nothing; the stacks, to be held against later ones; the stacks, to
    decide by."""

    NONE = "none"
    BEFORE = "before"
    NOW = "now"


def suspicion(told: Mapping[int, Rank], ranks: Collection[int], timeout: float) -> Suspicion:
    """``told`` is of ranks that were quiet for a while; ``ranks`` are all that have not ended and
    have an end of their own."""
    if not ranks or any(rank not in told for rank in ranks):
        return Suspicion.NONE
    several = [told[rank] for rank in ranks]
    if any(min(each.quiet, each.still) < timeout / 2 for each in several):
        return Suspicion.NONE
    if any(min(each.quiet, each.still) < timeout for each in several):
        busy = any(min(each.idle, each.gpu) < timeout / 2 for each in several)
        return Suspicion.BEFORE if busy else Suspicion.NONE
    # One that has just come to rest may have done its part: the others have to take theirs up.
    resting = any(timeout / 2 <= min(each.idle, each.gpu) < timeout for each in several)
    return Suspicion.NONE if resting else Suspicion.NOW


def hung(
    told: Mapping[int, Rank],
    before: Sequence[Process],
    now: Sequence[Process],
    timeout: float,
    clock: float,
) -> Failure | None:
    """How the job hangs, if every rank is stuck: idle, or polling for others at the same place as
    ``before`` without having run Python since. ``told`` is of the ranks that are to have progressed
    and ``now`` where they are. The failure's ``at`` is when the last of them to progress did,
    on the ``clock``."""
    for rank, each in told.items():
        if min(each.idle, each.gpu) >= timeout:
            continue
        mine = [process for process in now if process.rank == rank]
        busy = [process for process in mine if process.busy >= BUSY]
        gpu = each.gpu < timeout
        if gpu and not busy:
            busy = [process for process in mine if process.parent is None]
        earlier = {(p.node, p.pid): stacks.place(p) for p in before}
        if not busy or not all(_polls(process, earlier, timeout, gpu) for process in busy):
            return None
    least = min((min(each.quiet, each.still) for each in told.values()), default=timeout)
    found = _failure([each for each in now if each.rank in told], timeout)
    return found._replace(at=clock - least)


def _polls(
    process: Process, earlier: Mapping[tuple[int, int], object], timeout: float, gpu: bool
) -> bool:
    waits = stacks.waits(process.frames) or (gpu and stacks.waits_for_gpu(process.frames))
    same = earlier.get((process.node, process.pid)) == stacks.place(process)
    return bool(waits) and same and process.silent >= timeout / 2 - _SLACK


def _failure(processes: Sequence[Process], timeout: float) -> Failure:
    found = stacks.odd(processes)
    if found is not None:
        odd, others = found
        count = len({each.rank for each in others.processes})
        are = "others are" if count > 1 else "other is"
        message = (
            f"rank {odd.rank} on node {odd.node} has made no progress for {timeout:g} s: it is in "
            f"{stacks.at(odd)} while {count} {are} {stacks.doing(others.frames)}"
        )
        return Failure(Reason.HANG, odd.node, odd.rank, message=message)
    groups = stacks.group(stacks.own(processes))
    told = []
    for each in groups[:3]:
        several = len(each.ranks) > 1
        who = f"rank{'s' * several} {stacks.numbers(each.ranks)}"
        where = stacks.doing(each.frames) if each.frames else each.processes[0].why
        told.append(f"{who} {'are' if several else 'is'} {where}")
    more = f", and {counted(len(groups) - 3, 'more place')}" if len(groups) > 3 else ""
    said = f"no rank has made progress for {timeout:g} s: {', '.join(told)}{more}"
    one = groups[0].processes[0] if len(groups) == 1 and len(groups[0].ranks) == 1 else None
    node, rank = (None, None) if one is None else (one.node, one.rank)
    return Failure(Reason.HANG, node, rank, message=said)
