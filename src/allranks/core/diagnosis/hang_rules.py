"""Whether a job hangs, decided from what every node reports of its ranks. Pure.

As long as one rank makes progress, the others may be waiting for it. A rank that polls for its
peers uses a whole CPU without progress: only its stack shows that. docs/design/hangs.md has the
rules and the measurements behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from math import inf
from typing import NamedTuple

from allranks.core.amounts import counted
from allranks.core.attempt_end import Failure
from allranks.core.diagnosis import collectives, stacks
from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.stacks import Process
from allranks.statuses import Reason

# Share of a CPU above which a process is not merely waiting.
BUSY = 0.05
# Seconds by which two readings of a clock may differ.
_SLACK = 1.5


class Rank(NamedTuple):
    """Seconds since the rank last printed (``quiet``), used a CPU (``idle``), read or wrote data on
    disks or connections (``still``), and since a GPU of its node was busy."""

    quiet: float
    idle: float
    still: float
    gpu: float = inf


class Suspicion(Enum):
    """NONE; BEFORE: record stacks for a later comparison; NOW: record stacks and decide."""

    NONE = "none"
    BEFORE = "before"
    NOW = "now"


def suspicion(quiet: Mapping[int, Rank], ranks: Collection[int], timeout: float) -> Suspicion:
    """``quiet`` holds the ranks that have been quiet for a while; ``ranks`` are all that are
    running and expected to end by themselves."""
    if not ranks or any(rank not in quiet for rank in ranks):
        return Suspicion.NONE
    several = [quiet[rank] for rank in ranks]
    if any(min(rank.quiet, rank.still) < timeout / 2 for rank in several):
        return Suspicion.NONE
    if any(min(rank.quiet, rank.still) < timeout for rank in several):
        busy = any(min(rank.idle, rank.gpu) < timeout / 2 for rank in several)
        return Suspicion.BEFORE if busy else Suspicion.NONE
    # A rank that has just become idle may have finished its part: give the others time.
    resting = any(timeout / 2 <= min(rank.idle, rank.gpu) < timeout for rank in several)
    return Suspicion.NONE if resting else Suspicion.NOW


def hung(
    quiet: Mapping[int, Rank],
    before: Sequence[Process],
    now: Sequence[Process],
    timeout: float,
    clock: float,
    write_time: Callable[[float], str] = str,
) -> Failure | None:
    """The failure if every rank is stuck, else None. A rank is stuck if it is idle, or if it polls
    for others at the same place as ``before`` without having run Python since. ``now`` holds the
    current stacks; ``clock`` is the current time, and the failure's ``at`` the time of the last
    progress of any rank. ``write_time`` writes a time for people."""
    for rank, times in quiet.items():
        if min(times.idle, times.gpu) >= timeout:
            continue
        mine = [process for process in now if process.rank == rank]
        busy = [process for process in mine if process.busy >= BUSY]
        gpu = times.gpu < timeout
        if gpu and not busy:
            busy = [process for process in mine if process.parent is None]
        earlier = {(p.node, p.pid): stacks.place(p) for p in before}
        if not busy or not all(_polls(process, earlier, timeout, gpu) for process in busy):
            return None
    recorded = collectives.of_processes(now).values()
    if any(one.quiet < timeout - _SLACK for one in recorded):
        return None  # small tensors are less data than a connection's heartbeat
    least = min((min(times.quiet, times.still) for times in quiet.values()), default=timeout)
    stuck = [process for process in now if process.rank in quiet]
    failure = _in_collectives(stuck, timeout, write_time) or _failure(stuck, timeout)
    return failure._replace(at=clock - least)


def _in_collectives(
    processes: Sequence[Process], timeout: float, write_time: Callable[[float], str]
) -> Failure | None:
    """The failure if ranks have recorded in which collective they wait, and for whom."""
    finding = collectives.examine(processes)
    nodes = {process.rank: process.node for process in processes}
    if finding is None or finding.kind is collectives.Kind.OUTSIDE:
        return None
    text = collectives.sentence(finding, write_time, processes)
    rank = next((rank for rank in finding.ranks if rank in nodes), None)
    node = None if rank is None else nodes[rank]
    message = f"no rank has made progress for {timeout:g} s: {text}"
    cause = Cause.COLLECTIVE_MISMATCH if finding.kind in collectives.MISMATCHES else ""
    facts = collectives.facts(finding)
    return Failure(Reason.HANG, node, rank, message=message, cause=cause, collective=facts)


def _polls(
    process: Process, earlier: Mapping[tuple[int, int], object], timeout: float, gpu: bool
) -> bool:
    waits = stacks.waits(process.frames) or (gpu and stacks.waits_for_gpu(process.frames))
    same = earlier.get((process.node, process.pid)) == stacks.place(process)
    return bool(waits) and same and process.silent >= timeout / 2 - _SLACK


def _failure(processes: Sequence[Process], timeout: float) -> Failure:
    if different := stacks.odd(processes):
        odd, others = different
        count = len({process.rank for process in others.processes})
        are = "others are" if count > 1 else "other is"
        message = (
            f"rank {odd.rank} on node {odd.node} has made no progress for {timeout:g} s: it is in "
            f"{stacks.at(odd)} while {count} {are} {stacks.doing(others.frames)}"
        )
        return Failure(Reason.HANG, odd.node, odd.rank, message=message)
    groups = stacks.group(stacks.own(processes))
    places = []
    for group in groups[:3]:
        several = len(group.ranks) > 1
        subject = f"rank{'s' * several} {stacks.numbers(group.ranks)}"
        place = stacks.doing(group.frames) if group.frames else group.processes[0].why
        places.append(f"{subject} {'are' if several else 'is'} {place}")
    more = f", and {counted(len(groups) - 3, 'more place')}" if len(groups) > 3 else ""
    message = f"no rank has made progress for {timeout:g} s: {', '.join(places)}{more}"
    one = groups[0].processes[0] if len(groups) == 1 and len(groups[0].ranks) == 1 else None
    node, rank = (None, None) if one is None else (one.node, one.rank)
    return Failure(Reason.HANG, node, rank, message=message)
