"""One verdict on the profiles of all ranks: what a step waits for, whose fault it is, what to do.

Pure. The first thread of a rank is the one that trains. Rules prefer silence: what the evidence
does not carry is `unknown`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from allranks.core.diagnosis.collectives import Entry
from allranks.core.diagnosis.stacks import numbers
from allranks.core.profiles.samples import Phase, Samples, Thread, phase, place

# Samples of a rank below which nothing is said.
_FEWEST, _FEWEST_OF_LOCK = 30, 8
# Collectives below which nobody is called slow: by chance one is the last to a few.
_FEWEST_ARRIVALS = 8
# The share of them to which one rank comes last, from which it is the one that others wait for.
_MOST = 0.7
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
    MEMORY = "memory"
    UNKNOWN = "unknown"


class RankShares(NamedTuple):
    """Of a rank: the share of each phase; where it is mostly in each; how often it was the last to
    a collective; the part of its Python threads' processor time that others than the first use, and
    the busiest of these; the seconds for which the interpreter's lock is waited for; and the share
    of the time that its first thread waited for a processor."""

    rank: int
    shares: Mapping[Phase, float]
    places: Mapping[Phase, str]
    last: int = 0
    others: float = 0.0
    busiest: str = ""
    lock: float = 0.0
    starved: float = 0.0


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
    Phase.BACKWARD: 0.6,
    Phase.FORWARD: 0.5,
    Phase.OTHER: 0.5,
}
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
    mean = {kind: fmean(one.shares.get(kind, 0.0) for one in ranks) for kind in Phase}
    if (importing := mean.pop(Phase.IMPORT)) >= 0.3:
        text = f"the ranks import modules for {importing:.0%} of the time"
        return Verdict(Kind.UNKNOWN, text, "profile once they train")
    if not missing and (slow := _slow_rank(profiles, ranks, arrivals)) is not None:
        return slow
    waiting = mean.pop(Phase.COLLECTIVE)
    if waiting >= 0.4 and waiting > max(mean.values()):
        return _network(waiting, profiles, ranks, arrivals)
    for kind in (Phase.OPTIMIZER, Phase.BACKWARD, Phase.FORWARD, Phase.OTHER):
        mean[kind] /= max(1 - waiting, 0.1)  # of the rank's own time
    largest = max(mean, key=lambda kind: mean[kind] / _FROM[kind])
    if mean[largest] < _FROM[largest]:
        shares = ", ".join(f"{kind} {share:.0%}" for kind, share in mean.items() if share >= 0.05)
        return Verdict(Kind.UNKNOWN, f"no phase stands out: {shares}, waiting {waiting:.0%}")
    return _bottleneck(largest, mean[largest], ranks)


def _bottleneck(kind: Phase, share: float, ranks: Sequence[RankShares]) -> Verdict:
    where = next((one.places[kind] for one in ranks if one.places.get(kind)), "")
    at = f", mostly in {where}" if where else ""
    name = "the script's own Python" if kind is Phase.OTHER else str(kind)
    gain = 1 / max(1 - share, 0.1) if kind in (Phase.INPUT, Phase.CHECKPOINT) else None
    message = f"{name} takes {share:.0%} of the time{at}"
    made = Kind.PYTHON if kind is Phase.OTHER else Kind(kind.value)
    return Verdict(made, message, _HINTS[kind], gain, phase=kind)


def _network(
    waiting: float,
    profiles: Sequence[Samples],
    ranks: Sequence[RankShares],
    arrivals: Sequence[Mapping[int, Entry]],
) -> Verdict:
    message = f"the ranks wait {waiting:.0%} of the time in collectives"
    if len(ranks) < 2 or len(arrivals) < 3:
        return Verdict(Kind.UNKNOWN, message, "profile more seconds, and all ranks")
    late = [max(map(_since, one.values())) - fmean(map(_since, one.values())) for one in arrivals]
    if sum(late) / min(samples.seconds for samples in profiles) >= 0.3 * waiting:
        last = max(ranks, key=lambda one: one.last)
        if len(arrivals) < _FEWEST_ARRIVALS and last.last >= _MOST * len(arrivals):
            message += f"; rank {last.rank} comes last to {last.last} of {len(arrivals)}"
            return Verdict(Kind.UNKNOWN, message, "profile more seconds, to see more collectives")
        starved = fmean(one.starved for one in ranks)
        message += ", each time for another one"
        if starved >= 0.2:
            message += f"; they wait {starved:.0%} of it for a processor of their hosts"
        return Verdict(Kind.UNKNOWN, message, "give each rank its own processors")
    message += ", and none comes late"
    hint = (
        "exchange less: larger batches, gradient accumulation, or compressed gradients; check the"
    )
    hint += " network with `allranks compute check`"
    return Verdict(Kind.NETWORK, message, hint, 1 / max(1 - waiting, 0.1), phase=Phase.COLLECTIVE)


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
    idle = 0.0  # in backward; the kernel counts processor time in lumps, so it is summed up
    for number, span, cpu, waited in zip(main.stacks, times, main.cpu, main.waited, strict=True):
        kind = phases[number]
        if kind is Phase.BACKWARD:
            idle += (span - cpu - waited) / total
        shares[kind] = shares.get(kind, 0.0) + span / total
        places.setdefault(kind, Counter())[place(samples.stacks[number])] += 1
    if idle > 0 and _has_peers(samples):  # it waits in DDP's C++, which has no frame
        shares[Phase.BACKWARD] -= idle
        shares[Phase.COLLECTIVE] = shares.get(Phase.COLLECTIVE, 0.0) + idle
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


def _slow_rank(
    profiles: Sequence[Samples],
    ranks: Sequence[RankShares],
    arrivals: Sequence[Mapping[int, Entry]],
) -> Verdict | None:
    """The rank that the others wait for, if it is one, and they wait for long."""
    if len(ranks) < 2 or len(arrivals) < _FEWEST_ARRIVALS:
        return None
    late: dict[int, float] = {}
    for rank, after in map(_last, arrivals):
        late[rank] = late.get(rank, 0.0) + after
    slow = max(late, key=lambda rank: late[rank])
    seconds = late[slow]
    share = seconds / min(samples.seconds for samples in profiles)
    rest = sum(late.values()) - seconds
    count = sum(rank == slow for rank, _ in map(_last, arrivals))
    if share < 0.15 or rest > 0.4 * seconds or count < _MOST * len(arrivals):
        return None
    own = next(one for one in ranks if one.rank == slow)
    others = [one for one in ranks if one.rank != slow]

    def excess(of: Phase) -> float:
        return own.shares.get(of, 0.0) - fmean(one.shares.get(of, 0.0) for one in others)

    kind = max((one for one in Phase if one is not Phase.COLLECTIVE), key=excess)
    if excess(kind) < 0.1:
        return None  # it does nothing else than the others: their processors or network differ
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
