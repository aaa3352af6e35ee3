"""Which gangs of the queue start now, which spot gangs give way, and why the others wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from allranks.engines.local.capacity import Capacity


class Entry(NamedTuple):
    """A gang that waits or runs. ``ranks`` are those that run, or will; 0 if they do not count.
    With those of others they are at most ``most`` (0: any). Its scripts listen on ``ports``.
    ``preempted``: it was told to give way."""

    key: str
    need: Capacity
    arrived: float = 0.0
    ranks: int = 0
    most: int = 0
    ports: tuple[int, ...] = ()
    spot: bool = False
    preempted: bool = False

    @property
    def job(self) -> str:
        return self.key.rpartition(".")[0]


class Turns(NamedTuple):
    """``start``: keys of the gangs that start, in order. ``preempt``: those that give way, with the
    key of the gang that they give way to. ``waits``: why each of the others waits."""

    start: list[str]
    preempt: dict[str, str]
    waits: dict[str, str]


def turns(free: Capacity, running: Iterable[Entry], waiting: Iterable[Entry]) -> Turns:
    """Decide on all ``waiting`` gangs, in order of arrival; spot gangs come last, and first those
    that a rank of a running job submitted, because it may wait for them.

    Resources and ranks that an earlier gang waits for are reserved, so that small gangs cannot
    starve a large one. Nothing is reserved for a gang that waits for a port.
    """
    running = list(running)
    spots = [entry for entry in running if entry.spot]
    ranks = sum(entry.ranks for entry in running)
    users = {port: entry for entry in running for port in entry.ports}
    result = Turns([], {}, {})
    starts = list[Entry]()
    is_first = True
    for one in sorted(waiting, key=lambda entry: (entry.spot, entry.ranks > 0, entry.arrived)):
        if why := _taken_port(one, users):
            result.waits[one.key] = why
            continue
        # With no rank running, a gang starts whatever its size. Only the first in line is told for
        # which job it waits: each change of the text is an event of every gang that has it.
        if ranks and one.ranks and 0 < one.most < ranks + one.ranks:
            holders = (entry for entry in (*running, *starts) if entry.ranks)
            what = (is_first and _oldest(holders)) or "running ranks"
            result.waits[one.key] = (
                f"waits for {what} to end (`max_ranks` of the compute: {one.most})"
            )
            is_first = False
            ranks += one.ranks
            continue
        rest = free.minus(one.need)
        if missing := free.missing(one.need):
            result.waits[one.key] = f"waits for {' and '.join(missing)}"
            short = [name for name in free._fields if getattr(one.need, name) > getattr(free, name)]
            holds = (entry for entry in running if any(getattr(entry.need, name) for name in short))
            if is_first and (holder := _oldest(holds)):
                result.waits[one.key] += f", held by {holder}"
            is_first = False
            if not one.spot:
                victims = _preempted(one, free, spots)
                result.preempt.update(dict.fromkeys((victim.key for victim in victims), one.key))
                spots = [spot for spot in spots if spot not in victims]
                # What they release is not free yet.
                rest = Capacity._make(map(min, free, _sum(free, victims).minus(one.need)))
        else:
            result.start.append(one.key)
            starts.append(one)
            ranks += one.ranks
        users = dict.fromkeys(one.ports, one) | users
        free = rest
    return result


def _oldest(holders: Iterable[Entry]) -> str:
    """The job that has waited or run the longest, and whether there are others; '' for none."""
    order = sorted(holders, key=lambda entry: entry.arrived)
    return f"the job {order[0].job}{' and others' if order[1:] else ''}" if order else ""


def _taken_port(one: Entry, users: Mapping[int, Entry]) -> str:
    taken = [port for port in one.ports if port in users]
    return f"waits for port {taken[0]}, which the job {users[taken[0]].job} uses" if taken else ""


def _preempted(one: Entry, free: Capacity, spots: list[Entry]) -> list[Entry]:
    """The running spot gangs that give way to this one: those already preempted first, then the
    youngest. None, if all of them together would not suffice."""
    victims = list[Entry]()
    for spot in sorted(spots, key=lambda spot: (not spot.preempted, -spot.arrived)):
        if not _sum(free, victims).missing(one.need):
            break
        victims.append(spot)
    return [] if _sum(free, victims).missing(one.need) else victims


def _sum(free: Capacity, victims: Iterable[Entry]) -> Capacity:
    return reduce(Capacity.plus, (victim.need for victim in victims), free)
