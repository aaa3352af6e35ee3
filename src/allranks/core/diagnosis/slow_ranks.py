"""Which rank, or which node, holds the others: slow, not stuck.

Pure. Torch's recorder tells when each rank has called each collective. A collective begins when its
last member has called it. So a rank holds the others by the time between its call and the call of
the one before it, if it needed longer for its own work since the collective before. Rules prefer
silence: ranks whose work differs by chance are last in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log
from statistics import median
from typing import NamedTuple

# Shares of the time for which others wait for a rank: from which it is slow, below which a slow one
# has recovered, and the least in each tally that has enough arrivals to be judged.
_SLOW_SHARE = 0.15
_RECOVERED_SHARE = 0.08
_LEAST_SHARE_PER_TALLY = 0.1
_ARRIVALS_TO_JUDGE_A_TALLY = 8
# A slow rank comes last to at least this share of the late collectives. The natural logarithm of
# the chance that one of equal ranks does so is at most this.
_SHARE_LAST = 0.7
_MOST_LOG_CHANCE = -14.0
# The lateness of all other ranks together, as a share of the slow rank's.
_MOST_LATENESS_OF_OTHERS = 0.4
# So clear a case needs a third of the time, and fewer collectives: a rank that is last to nearly
# all, for which others wait half of the time.
_CLEAR_SHARE = 0.5
_CLEAR_SHARE_LAST = 0.95
_CLEAR_LATENESS_OF_OTHERS = 0.1
_CLEAR_TIME = 1 / 3
# With fewer collectives, or fewer that it is late to, no rank is slow: one that saves a checkpoint
# is late only now and then.
_FEWEST_COLLECTIVES = 48
_FEWEST_LATE = 12
# With more collectives than this, and than so many for each late one, older tallies say nothing.
_ENOUGH_COLLECTIVES = 256
_RARELY_LATE = 32
# Seconds of lateness that count; more on several hosts, whose clocks differ.
_LATE_SECONDS = 0.001
_LATE_SECONDS_ACROSS_HOSTS = 0.02
# Seconds by which a period may be too short.
_PERIOD_TOLERANCE = 0.5
# A late arrival counts if its lateness is this share of the usual one.
_NOTABLE_SHARE = 0.5

# A group of ranks, and the number of a collective in it.
Call = tuple[str, int]


class Group(NamedTuple):
    name: str
    ranks: tuple[int, ...]


class Arrival(NamedTuple):
    """A collective that all members have called: when, and for how long each had done something of
    its own before; without those whose call before is unknown."""

    since: Mapping[int, float]
    own: Mapping[int, float]


class Tally(NamedTuple):
    """What so many ``arrivals`` from ``begin`` to ``at`` say, which cover so many ``seconds``. Of
    each member: to how many it comes late by its own work (``last``), and by how many seconds in
    all (``late``); the seconds for which others wait for it (``held``), and for which it waits
    (``waited``)."""

    begin: float
    at: float
    seconds: float
    arrivals: int
    last: Mapping[int, int]
    late: Mapping[int, float]
    held: Mapping[int, float]
    waited: Mapping[int, float]


class Slow(NamedTuple):
    """A member that holds the others for ``share`` of the time, since ``since``."""

    member: int
    share: float
    last: int
    of: int
    since: float


def arrivals(
    groups: Iterable[Group], calls: Mapping[int, Mapping[Call, float]], after: Mapping[Group, int]
) -> tuple[list[Arrival], dict[Group, int]]:
    """The new collectives, in the order of their beginnings, and the newest number of each group.
    ``calls`` are the last ones of each rank; ``after`` are the numbers that are not new."""
    complete: dict[tuple[Group, int], dict[int, float]] = {}
    newest = dict(after)
    for group in groups:
        if len(group.ranks) < 2 or any(rank not in calls for rank in group.ranks):
            continue
        shared = set.intersection(*({*calls[rank]} for rank in group.ranks))
        for name, number in shared:
            if name == group.name:
                since = {rank: calls[rank][name, number] for rank in group.ranks}
                complete[group, number] = since
                newest[group] = max(number, newest.get(group, -1))
    begins = {
        (rank, (group.name, number)): max(since.values())
        for (group, number), since in complete.items()
        for rank in since
    }
    before = {rank: _before(several) for rank, several in calls.items()}
    new = []
    for (group, number), since in complete.items():
        if number > after.get(group, -1):
            own = {}
            for rank, at in since.items():
                call, called = before[rank].get((group.name, number), (None, 0.0))
                if call is not None and (rank, call) in begins:
                    begin = begins[rank, call]
                    # It may go on before the others have come: DDP calls several at once.
                    own[rank] = at - (begin if begin <= at else called)
            new.append(Arrival(since, own))
    return sorted(new, key=lambda one: max(one.since.values())), newest


def _before(calls: Mapping[Call, float]) -> dict[Call, tuple[Call, float]]:
    """The call before each one, and when it was."""
    order = sorted(calls, key=lambda call: calls[call])
    return {call: (one, calls[one]) for one, call in pairwise(order)}


def of_nodes(arrival: Arrival, nodes: Mapping[int, int]) -> Arrival:
    """The arrival of nodes: of the last of their ranks."""
    since: dict[int, float] = {}
    own: dict[int, float] = {}
    for rank, at in sorted(arrival.since.items(), key=lambda item: item[1]):
        since[nodes[rank]] = at
        if rank in arrival.own:
            own[nodes[rank]] = arrival.own[rank]
    return Arrival(since, own)


def tally(new: Sequence[Arrival], begin: float, at: float, several_hosts: bool) -> Tally:
    """Sum up the arrivals that came in a time."""
    lates: list[tuple[int, float]] = []
    held: dict[int, list[tuple[float, float]]] = {}
    waits: dict[int, list[tuple[float, float]]] = {}
    complete = [arrival for arrival in new if len(arrival.own) == len(arrival.since) > 1]
    for arrival in complete:
        order = sorted(arrival.since, key=lambda member: arrival.since[member])
        who, start = order[-1], arrival.since[order[-1]]
        for member in order[:-1]:
            waits.setdefault(member, []).append((arrival.since[member], start))
        excess = arrival.own[who] - median(arrival.own[member] for member in order[:-1])
        delay = min(start - arrival.since[order[-2]], excess)
        if delay >= (_LATE_SECONDS_ACROSS_HOSTS if several_hosts else _LATE_SECONDS):
            lates.append((who, delay))
            held.setdefault(who, []).append((start - delay, start))
    spans = [
        (max(one.since.values()) - max(one.own.values()), max(one.since.values()))
        for one in complete
    ]
    late: dict[int, float] = {}
    for who, delay in lates:
        late[who] = late.get(who, 0.0) + delay
    # Everybody is a little late now and then.
    least = _NOTABLE_SHARE * sum(late.values()) / (len(lates) or 1)
    last = Counter(who for who, delay in lates if delay >= least)
    return Tally(
        begin,
        at,
        _length(spans),
        len(complete),
        last,
        late,
        {member: _length(spans) for member, spans in held.items()},
        {member: _length(spans) for member, spans in waits.items()},
    )


def _length(spans: Iterable[tuple[float, float]]) -> float:
    """The time that the spans cover: several collectives may be open at once."""
    total, until = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def slow(tallies: Sequence[Tally], least: float) -> Slow | None:
    """Who has held the others for ``least`` seconds until the newest of the tallies; for longer,
    where there are few collectives, and less long in a clear case."""
    for first in range(len(tallies) - 1, -1, -1):
        several = tallies[first:]
        count = sum(one.arrivals for one in several)
        passed = several[-1].at - several[0].begin + _PERIOD_TOLERANCE
        if passed >= least * _CLEAR_TIME:
            is_long = passed >= least and count >= _FEWEST_COLLECTIVES
            if (slowest := _slow(several, only_clear=not is_long)) is not None:
                return slowest
            if is_long and count > max(
                _ENOUGH_COLLECTIVES, _RARELY_LATE * sum(sum(one.last.values()) for one in several)
            ):
                return None
    return None


def _slow(tallies: Sequence[Tally], only_clear: bool) -> Slow | None:
    late: Counter[int] = Counter()
    last: Counter[int] = Counter()
    for one in tallies:
        late.update(one.late)  # type: ignore[arg-type,unused-ignore]
        last.update(one.last)
    if not late:
        return None
    member = max(late, key=lambda rank: late[rank])
    count = sum(last.values())
    members = {rank for one in tallies for rank in one.waited} | {member}
    often = last[member] / count
    rest = sum(late.values()) - late[member]
    always = all(
        share([one], member) >= _LEAST_SHARE_PER_TALLY
        for one in tallies
        if one.arrivals >= _ARRIVALS_TO_JUDGE_A_TALLY
    )
    least_last = _CLEAR_SHARE_LAST if only_clear else _SHARE_LAST
    most_rest = _CLEAR_LATENESS_OF_OTHERS if only_clear else _MOST_LATENESS_OF_OTHERS
    if often < least_last or rest > most_rest * late[member] or not always:
        return None
    if (
        last[member] < _FEWEST_LATE
        or count * _distance(often, 1 / len(members)) < -_MOST_LOG_CHANCE
    ):
        return None
    whole = share(tallies, member)
    if whole < (_CLEAR_SHARE if only_clear else _SLOW_SHARE):
        return None
    return Slow(member, whole, last[member], count, tallies[0].begin)


def seems_slow(newest: Tally) -> bool:
    """Whether somebody has held the others just now."""
    return any(share([newest], member) >= _SLOW_SHARE for member in newest.held)


def _distance(share: float, chance: float) -> float:
    """Of n tries with that chance, the share comes up with a probability of exp(-n·distance) at
    most (Chernoff)."""
    rest = 0.0 if share >= 1 else (1 - share) * log((1 - share) / (1 - chance))
    return share * log(share / chance) + rest if share > chance else 0.0


def share(tallies: Iterable[Tally], member: int) -> float:
    """The share of the time for which others wait for the member."""
    several = list(tallies)
    return sum(one.held.get(member, 0.0) for one in several) / (
        sum(one.seconds for one in several) or 1.0
    )


def is_over(tallies: Sequence[Tally], member: int, least: float) -> bool:
    """Whether a member that held the others has not done so for ``least`` seconds."""
    recent = [one for one in tallies if tallies[-1].at - one.begin <= least + _PERIOD_TOLERANCE]
    passed = recent[-1].at - recent[0].begin if recent else 0.0
    return passed >= least - _PERIOD_TOLERANCE and share(recent, member) < _RECOVERED_SHARE
