"""One verdict on the profiles of all ranks: what a step waits for, whose fault it is, what to do.

Pure. The first thread of a rank is the one that trains. Rules prefer silence: what the evidence
does not carry is `unknown`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from allranks.core.diagnosis.collectives import Entry
from allranks.core.diagnosis.stacks import numbers
from allranks.core.profiles.samples import Phase, Samples, Thread, phase, place

# Samples of a rank below which nothing is said.
_FEWEST, _FEWEST_OF_LOCK = 30, 8
# Collectives below which nobody is called slow; and, with few or with enough, the share of its time
# that it takes more for something than the others: by chance one is the last to a few.
_FEWEST_ARRIVALS, _ENOUGH_ARRIVALS = 4, 8
_EXCESS_OF_FEW, _EXCESS = 0.4, 0.1
# The part of the processor time that is other threads', and the seconds that a sample waits for the
# interpreter's lock, from which that is the bottleneck: if wanted, it changes hands every 5 ms.
_OTHERS, _LOCK = 0.4, 0.002


class Kind(StrEnum):
    SLOW_RANK = "slow_rank"
    NETWORK = "network"
    GIL = "gil"
    INPUT = "input"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    CHECKPOINT = "checkpoint"
    PYTHON = "python"
    WAITING = "waiting"
    MEMORY = "memory"
    UNKNOWN = "unknown"


class RankShares(NamedTuple):
    """Of a rank: the share of each phase, of the time that its first thread did not wait for a
    processor; where it is mostly in each; how often it was the last to a collective; the part of
    its Python threads' processor time that others than the first use, and the busiest of these; the
    seconds for which the interpreter's lock is waited for; the share of the time that its first
    thread waited for a processor; the part of the phase OTHER in which it and all other threads do
    nothing, and where it is then mostly."""

    rank: int
    shares: Mapping[Phase, float]
    places: Mapping[Phase, str]
    last: int = 0
    others: float = 0.0
    busiest: str = ""
    lock: float = 0.0
    starved: float = 0.0
    idle: float = 0.0
    waits_in: str = ""


class Verdict(NamedTuple):
    """``gain``: how many times as fast it could be at most, without that."""

    kind: Kind
    message: str
    hint: str = ""
    gain: float | None = None
    rank: int | None = None
    phase: Phase | None = None
    ranks: tuple[RankShares, ...] = ()
    collectives: int = 0


# The share of the time from which a phase is the bottleneck.
_FROM = {
    Phase.CHECKPOINT: 0.2,
    Phase.INPUT: 0.3,
    Phase.OPTIMIZER: 0.4,
    Phase.BACKWARD: 0.75,
    Phase.FORWARD: 0.5,
    Phase.OTHER: 0.5,
}
# Their share is of all the time, that of the others of what is not waiting.
_OF_ALL = (Phase.INPUT, Phase.CHECKPOINT)
# The share of the time in collectives from which the network is the bottleneck, and that which is
# left of it at least if the hosts had processors enough.
_NETWORK, _LEAST_NETWORK = 0.35, 0.22
# The part of the slowest rank's time in a phase that each rank takes, if all are slow.
_EVEN = 0.3
_HINTS = {
    Phase.INPUT: "read ahead with DataLoader(num_workers=…, persistent_workers=True), or prepare "
    "the data once",
    Phase.CHECKPOINT: "save less often, or in the background (torch.distributed.checkpoint."
    "async_save)",
    Phase.OPTIMIZER: "use a fused or foreach optimizer, or step after several batches",
    Phase.BACKWARD: "profile its operators with --kind torch; try torch.compile or mixed precision",
    Phase.FORWARD: "profile its operators with --kind torch; try torch.compile or mixed precision",
    Phase.OTHER: "the loop's own Python takes the time: move it out of the loop, or into workers",
}

# The part of the phase OTHER that is waiting, from which that is the bottleneck.
_IDLE = 0.5
_WAITING_HINT = (
    "look at what it waits for there: a sleep, a lock, a file, the network, another process or a "
    "GPU"
)


def verdict(profiles: Sequence[Samples], missing: Sequence[int] = ()) -> Verdict:
    """``missing`` are ranks that gave no profile."""
    ranks = [rank_shares(samples) for samples in profiles]
    arrivals = _arrivals(profiles)
    last = Counter(rank for rank, _ in map(_last, arrivals))
    ranks = [one._replace(last=last[one.rank]) for one in ranks]
    made = _decide(profiles, ranks, arrivals, missing)
    return made._replace(ranks=tuple(ranks), collectives=len(arrivals))


def _decide(
    profiles: Sequence[Samples],
    ranks: Sequence[RankShares],
    arrivals: Sequence[Mapping[int, Entry]],
    missing: Sequence[int],
) -> Verdict:
    counts = [len(samples.main.at) for samples in profiles if samples.main is not None]
    # Where the lock is held there are few samples, and this is why.
    enough = len(counts) == len(ranks) and min(counts, default=0) >= _FEWEST_OF_LOCK
    if enough and (gil := _gil(ranks)) is not None:
        return gil
    if not ranks or len(counts) < len(ranks) or min(counts) < _FEWEST:
        return Verdict(Kind.UNKNOWN, "the ranks were sampled too rarely", "profile more seconds")
    if (importing := fmean(one.shares.get(Phase.IMPORT, 0.0) for one in ranks)) >= 0.3:
        text = f"the ranks import modules for {importing:.0%} of the time"
        return Verdict(Kind.UNKNOWN, text, "profile once they train")
    if not missing and (slow := _slow_rank(profiles, ranks, arrivals)) is not None:
        return slow
    times = _times(profiles, ranks, arrivals)
    shares = {
        kind: seconds / (times.own + (times.transfer if kind in _OF_ALL else 0.0) or 1.0)
        for kind, seconds in times.phases.items()
    }
    largest = max(shares, key=lambda kind: shares[kind] / _FROM[kind])
    waiting = times.transfer / (times.own + times.transfer or 1.0)
    least = times.least_transfer / (times.own + times.least_transfer or 1.0)
    if waiting / _NETWORK >= max(1.0, shares[largest] / _FROM[largest]):
        if least >= _LEAST_NETWORK:
            return _network(waiting, profiles[0].seconds, ranks, arrivals)
        message = f"all ranks wait {waiting:.0%} of the time in collectives"
        return Verdict(Kind.UNKNOWN, message + _starved_text(ranks), "profile again, unloaded")
    if shares[largest] < _FROM[largest]:
        text = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items() if share >= 0.05)
        message = f"no phase stands out: {text}, waiting {_waiting(ranks):.0%}"
        return Verdict(Kind.UNKNOWN, message + _starved_text(ranks))
    seconds = [one.shares.get(largest, 0.0) * (1 - one.starved) for one in ranks]
    if largest is not Phase.CHECKPOINT and min(seconds) < _EVEN * max(seconds):
        rank = ranks[seconds.index(max(seconds))].rank
        message = f"{largest} takes rank {rank} far longer than others, but too rarely to be sure"
        return Verdict(Kind.UNKNOWN, message, "profile more seconds")
    return _bottleneck(largest, shares[largest], ranks)


class _Times(NamedTuple):
    """Seconds of all ranks together, without those that they waited for a processor. ``phases``:
    of each phase, ``own`` of all these; ``transfer``: in collectives that all have called, and at
    least so long if the hosts had processors enough."""

    phases: Mapping[Phase, float]
    own: float
    transfer: float
    least_transfer: float


def _times(
    profiles: Sequence[Samples],
    ranks: Sequence[RankShares],
    arrivals: Sequence[Mapping[int, Entry]],
) -> _Times:
    phases = dict.fromkeys(_FROM, 0.0)
    transfer = networked = ran = waited = 0.0
    for samples, one in zip(profiles, ranks, strict=True):
        free = samples.seconds * (1 - one.starved)
        for kind in phases:
            phases[kind] += one.shares.get(kind, 0.0) * free
        waiting = one.shares.get(Phase.COLLECTIVE, 0.0) * free
        transfer += max(0.0, waiting - _waited_for_late(one.rank, arrivals))
        networked += sum(thread.ran for thread in samples.native if "gloo" in thread.name)
        ran += sum(samples.main.cpu) if samples.main else 0.0
        waited += samples.waited
    # The network's threads wait for processors, too, at least as often as the first one.
    stretch = (ran + waited) / ran if ran else 1.0
    least = min(transfer, max(transfer / stretch, networked))
    return _Times(phases, sum(phases.values()), transfer, least)


def _waited_for_late(rank: int, arrivals: Sequence[Mapping[int, Entry]]) -> float:
    """Seconds in which it had called a collective that another rank had not. Several may be open
    at once."""
    spans = sorted(
        (calls[rank].since, max(map(_since, calls.values()))) for calls in arrivals if rank in calls
    )
    total, until = 0.0, 0.0
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _own_share(one: RankShares) -> float:
    """Of all its time, that in which it waits neither for others nor for a processor."""
    return (1 - one.shares.get(Phase.COLLECTIVE, 0.0)) * (1 - one.starved)


def _waiting(ranks: Sequence[RankShares]) -> float:
    return fmean(one.shares.get(Phase.COLLECTIVE, 0.0) for one in ranks)


def _starved_text(ranks: Sequence[RankShares]) -> str:
    starved = fmean(one.starved for one in ranks)
    return f"; they wait {starved:.0%} of it for a processor of their hosts" * (starved >= 0.2)


def _at(places: Iterable[str]) -> str:
    where = next(filter(None, places), "")
    return f", mostly in {where}" if where else ""


def _bottleneck(kind: Phase, share: float, ranks: Sequence[RankShares]) -> Verdict:
    idle = fmean(one.idle for one in ranks)
    if kind is Phase.OTHER and idle >= _IDLE:
        at = _at(one.waits_in for one in ranks)
        message = f"the script waits {share * idle:.0%} of the time{at}"
        return Verdict(Kind.WAITING, message, _WAITING_HINT, phase=kind)
    at = _at(one.places.get(kind, "") for one in ranks)
    name = "the script's own Python" if kind is Phase.OTHER else str(kind)
    gain = 1 / max(1 - share, 0.1) if kind in _OF_ALL else None
    message = f"{name} takes {share:.0%} of the time{at}{_starved_text(ranks)}"
    made = Kind.PYTHON if kind is Phase.OTHER else Kind(kind.value)
    return Verdict(made, message, _HINTS[kind], gain, phase=kind)


def _network(
    share: float,
    seconds: float,
    ranks: Sequence[RankShares],
    arrivals: Sequence[Mapping[int, Entry]],
) -> Verdict:
    message = f"all ranks wait {share:.0%} of the time in collectives that none comes late to"
    if len(ranks) < 2 or len(arrivals) < 3:
        return Verdict(Kind.UNKNOWN, message, "profile more seconds, and all ranks")
    if any(one.lock >= _LOCK for one in ranks):
        return Verdict(Kind.UNKNOWN, f"{message}, and for the interpreter's lock")
    late = _late(arrivals)
    last = max(late, key=lambda rank: late[rank])
    if late[last] > 0.7 * sum(late.values()) and late[last] >= 0.1 * seconds:
        # Unless it is late for want of a processor.
        own = {one.rank: _own_share(one) for one in ranks}
        if own.pop(last) >= 1.5 * fmean(own.values()):
            text = f"all ranks wait in collectives, the longest for rank {last}"
            return Verdict(Kind.UNKNOWN, text, "profile more seconds")
    hint = (
        "exchange less: larger batches, gradient accumulation, or compressed gradients; check the"
    )
    hint += " network with `allranks compute check`"
    message += _starved_text(ranks)
    return Verdict(Kind.NETWORK, message, hint, 1 / max(1 - share, 0.1), phase=Phase.COLLECTIVE)


def _gil(ranks: Sequence[RankShares]) -> Verdict | None:
    held = [one for one in ranks if one.others >= _OTHERS and one.lock >= _LOCK]
    if len(held) * 2 <= len(ranks):
        return None
    others = fmean(one.others for one in held)
    message = (
        f"the interpreter's lock: {others:.0%} of the Python threads' processor time is not the "
        f"training thread's, mostly {held[0].busiest}"
    )
    hint = "move what those threads compute into processes (DataLoader workers, multiprocessing)"
    return Verdict(Kind.GIL, message, hint, 1 / max(1 - others, 0.1))


# ---------------------------------------------------------------- a rank


def rank_shares(samples: Samples) -> RankShares:
    main = samples.main
    if main is None or not main.at:
        return RankShares(samples.rank, {}, {})
    phases = [phase(stack) for stack in samples.stacks]
    times = _spans(main)
    total = sum(times) or 1.0
    shares: dict[Phase, float] = {}
    places: dict[Phase, Counter[str]] = {}
    # What it does not do there itself, nor wait for a processor to do, other threads do or other
    # ranks. The kernel counts the waiting in lumps, so it is summed up.
    idle = 0.0
    waiting: dict[str, float] = {}
    for number, span, cpu, waited in zip(main.stacks, times, main.cpu, main.waited, strict=True):
        kind = phases[number]
        if kind is Phase.BACKWARD:
            idle += span - cpu - waited
        elif kind is Phase.OTHER:
            where = place(samples.stacks[number], of_line=True)
            waiting[where] = waiting.get(where, 0.0) + span - cpu - waited
        shares[kind] = shares.get(kind, 0.0) + span - waited
        places.setdefault(kind, Counter())[place(samples.stacks[number])] += 1
    # The engine of autograd computes for a GPU in a thread of its own.
    idle -= sum(one.ran + one.waited for one in samples.native if "autograd" in one.name)
    if idle > 0 and _has_peers(samples):  # it waits in DDP's C++, which has no frame
        shares[Phase.BACKWARD] -= idle
        shares[Phase.COLLECTIVE] = shares.get(Phase.COLLECTIVE, 0.0) + idle
    # What the first thread waits for may be another one that computes.
    slept = sum(waiting.values()) - sum(one.ran + one.waited for one in samples.native)
    other = shares.get(Phase.OTHER, 0.0)
    free = sum(max(0.0, seconds) for seconds in shares.values()) or 1.0
    shares = {kind: max(0.0, seconds) / free for kind, seconds in shares.items()}
    used = {thread: sum(thread.cpu) for thread in samples.threads if not thread.is_main}
    busiest = max(used, key=lambda thread: used[thread], default=None)
    return RankShares(
        samples.rank,
        shares,
        {kind: counted.most_common(1)[0][0] for kind, counted in places.items()},
        others=sum(used.values()) / (sum(used.values()) + sum(main.cpu) or 1.0),
        busiest="" if busiest is None else _thread_text(samples, busiest),
        lock=samples.lock,
        starved=min(1.0, samples.waited / total),
        idle=min(1.0, max(0.0, slept) / other) if other > 0 else 0.0,
        waits_in=max(waiting, key=lambda where: waiting[where], default=""),
    )


def _thread_text(samples: Samples, thread: Thread) -> str:
    """The thread and where it is most often."""
    number, _ = Counter(thread.stacks).most_common(1)[0]
    return f"{thread.name} in {place(samples.stacks[number]) or 'a library'}"


def _has_peers(samples: Samples) -> bool:
    recorded = samples.recorded
    return recorded is not None and any(len(group.ranks) > 1 for group in recorded.groups)


def _spans(thread: Thread) -> list[float]:
    """The time that each sample stands for: up to it from the last one."""
    return [at - before for before, at in zip((0.0, *thread.at), thread.at, strict=False)]


# ---------------------------------------------------------------- collectives of all ranks


def _arrivals(profiles: Sequence[Samples]) -> list[Mapping[int, Entry]]:
    """The collectives of the window that all ranks of their group have called, by rank."""
    groups = {
        (group.name, group.ranks)
        for samples in profiles
        if samples.recorded is not None
        for group in samples.recorded.groups
        if len(group.ranks) > 1
    }
    calls = {
        samples.rank: {(entry.group, entry.number): entry for entry in samples.recorded.entries}
        for samples in profiles
        if samples.recorded is not None
    }
    arrivals: list[Mapping[int, Entry]] = []
    for name, members in sorted(groups):
        if all(rank in calls for rank in members):
            shared = set.intersection(*(set(calls[rank]) for rank in members))
            for key in sorted(key for key in shared if key[0] == name):
                arrivals.append({rank: calls[rank][key] for rank in members})
    return arrivals


def _since(entry: Entry) -> float:
    return entry.since


def _last(arrival: Mapping[int, Entry]) -> tuple[int, float]:
    """The rank that came last, and by how many seconds after the one before it."""
    order = sorted(arrival, key=lambda rank: arrival[rank].since)
    return order[-1], arrival[order[-1]].since - arrival[order[-2]].since


def _late(arrivals: Sequence[Mapping[int, Entry]]) -> dict[int, float]:
    """The seconds that each rank came last by."""
    late: dict[int, float] = {}
    for rank, after in map(_last, arrivals):
        late[rank] = late.get(rank, 0.0) + after
    return late


def _slow_rank(
    profiles: Sequence[Samples],
    ranks: Sequence[RankShares],
    arrivals: Sequence[Mapping[int, Entry]],
) -> Verdict | None:
    """The rank that the others wait for, if it is one, and they wait for long."""
    if len(ranks) < 2 or len(arrivals) < _FEWEST_ARRIVALS:
        return None
    late = _late(arrivals)
    slow = max(late, key=lambda rank: late[rank])
    seconds = late[slow]
    share = seconds / min(samples.seconds for samples in profiles)
    rest = sum(late.values()) - seconds
    count = sum(rank == slow for rank, _ in map(_last, arrivals))
    own = next(one for one in ranks if one.rank == slow)
    others = [one for one in ranks if one.rank != slow]

    def excess(of: Phase) -> float:
        return own.shares.get(of, 0.0) - fmean(one.shares.get(of, 0.0) for one in others)

    kind = max((one for one in Phase if one is not Phase.COLLECTIVE), key=excess)
    if excess(kind) < (_EXCESS if len(arrivals) >= _ENOUGH_ARRIVALS else _EXCESS_OF_FEW):
        return None  # it does nothing else than the others: their processors or network differ
    # In seconds, too: who gets no processor is late with as much to do as the others.
    done = {one.rank: one.shares.get(kind, 0.0) * (1 - one.starved) for one in ranks}
    if done.pop(slow) < 1.5 * fmean(done.values()):
        return None
    # A checkpoint that one rank writes makes it late now and then.
    often = count >= 0.7 * len(arrivals) and rest <= 0.4 * seconds
    if share < 0.15 or not (often or (kind is Phase.CHECKPOINT and rest <= seconds)):
        return None
    message = f"rank {slow} comes last to {count} of {len(arrivals)} collectives, and "
    several = "s" if len(others) > 1 else ""
    message += f"rank{several} {numbers([one.rank for one in others])} wait{'s' * (not several)} "
    message += f"{share:.0%} of the time for it"
    where = f" ({own.places[kind]})" if own.places.get(kind) else ""
    usual = fmean(one.shares.get(kind, 0.0) for one in others)
    message += f": {kind} takes it {own.shares[kind]:.0%}{where}, the others {usual:.0%}"
    hint = f"look at what differs on rank {slow}: its data, its host, or what only it does"
    gain = 1 / max(1 - share, 0.1)
    return Verdict(Kind.SLOW_RANK, message, hint, gain, slow, kind)
