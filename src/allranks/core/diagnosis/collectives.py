"""Compare what the ranks of a job have recorded of their collectives: who keeps the others waiting.

Pure. A collective has a number in its group, the same for all ranks of the group. So the first one
that some rank has begun and not finished tells: who has not called it, or who has called something
else under its number.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.core.diagnosis.stacks import Process, doing, numbers

if TYPE_CHECKING:
    from allranks.api.jobs import ErrorCollective

# Operations whose ranks may give tensors of different sizes.
_UNEVEN = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "coalesced", "barrier")
_SAME_SIZES = ("all_reduce", "allreduce", "broadcast", "reduce")
# What gloo says before it aborts a rank that got more data than its own collective takes.
_TOO_MUCH_DATA = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,18}) vs (\d{1,18})\b")
# A process of a job may answer anything: the most characters of a name.
_LONGEST = 200
# Seconds since the epoch that every system can write as a time of day.
_LAST_TIME = 1 << 40


class Entry(NamedTuple):
    """A collective that a rank has called. ``number`` counts those of the group; ``sizes`` and
    ``types`` are of its tensors; ``pending``: it has not finished; ``since`` is when it was called,
    ``place`` where: `train.py:14`."""

    group: str
    number: int
    operation: str
    sizes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    pending: bool
    since: float
    place: str


class Group(NamedTuple):
    """``title`` is what the script calls it."""

    name: str
    title: str
    ranks: tuple[int, ...]


class Recorded(NamedTuple):
    """What a process has recorded: its groups, and the last collectives of each in the order of
    their numbers. ``rank`` is that of the default group; ``quiet`` are the seconds since it called
    the last one, ``at`` is when it was asked."""

    rank: int
    groups: tuple[Group, ...]
    entries: tuple[Entry, ...]
    quiet: float = inf
    at: float = inf


class Kind(StrEnum):
    """What is wrong with a collective."""

    NOT_CALLED = "not_called"
    GONE = "gone"
    SILENT = "silent"
    OPERATION = "operation"
    SHAPE = "shape"
    TYPE = "type"
    GROUPS = "groups"
    NETWORK = "network"
    OUTSIDE = "outside"


# Ranks called different collectives, or with different tensors, and would do so again.
MISMATCHES = (Kind.OPERATION, Kind.SHAPE, Kind.TYPE)


class Finding(NamedTuple):
    """Why ranks wait: ``ranks`` are those to look at, ``waiting`` those that wait, since
    ``since`` at the latest; ``entry`` is what they wait in. Of a mismatch, ``ranks`` called
    ``other`` and ``same`` called ``entry``. ``ended``: ranks that have left, whatever they
    called."""

    kind: Kind
    ranks: tuple[int, ...]
    waiting: tuple[int, ...] = ()
    group: Group | None = None
    entry: Entry | None = None
    other: Entry | None = None
    same: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()

    @property
    def since(self) -> float:
        return 0.0 if self.entry is None else self.entry.since


def load(data: Mapping[str, Any]) -> Recorded:
    """What a rank has answered. Raises TypeError, ValueError or KeyError if it is malformed."""
    groups = (
        Group(str(name)[:_LONGEST], str(title)[:_LONGEST], _numbers(ranks))
        for name, title, ranks in data["groups"]
    )
    entries = sorted(map(_entry, data["entries"]), key=lambda entry: entry.number)
    last = max((entry.since for entry in entries), default=-inf)
    at = _time(data["at"])
    return Recorded(_number(data["rank"]), tuple(groups), tuple(entries), at - last, at)


def of_processes(processes: Iterable[Process]) -> dict[int, Recorded]:
    """What the processes of the job have recorded, by rank; without what is malformed."""
    return by_rank(one.collectives for one in processes if one.collectives is not None)


def by_rank(answers: Iterable[Mapping[str, Any]]) -> dict[int, Recorded]:
    """What ranks have answered; without what is malformed."""
    recorded: dict[int, Recorded] = {}
    for answer in answers:
        with contextlib.suppress(TypeError, ValueError, KeyError):
            loaded = load(answer)
            recorded[loaded.rank] = loaded
    return recorded


def _entry(data: Mapping[str, Any]) -> Entry:
    return Entry(
        str(data["group"])[:_LONGEST],
        _number(data["number"]),
        str(data["operation"])[:_LONGEST],
        tuple(map(_numbers, data["sizes"])),
        tuple(str(kind)[:_LONGEST] for kind in data["types"]),
        data["pending"] is True,
        _time(data["since"]),
        str(data["place"])[:_LONGEST],
    )


def _numbers(data: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(_number, data))


def _time(value: Any) -> float:
    if not 0 <= value < _LAST_TIME:
        raise ValueError(f"{str(value)[:_LONGEST]} is not a time")
    return float(value)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    return value


# ---------------------------------------------------------------- comparison


def examine(processes: Collection[Process]) -> Finding | None:
    """Compare what all processes of the job have recorded. A rank without a process has ended."""
    recorded = of_processes(processes)
    expected = {rank for one in recorded.values() for group in one.groups for rank in group.ranks}
    return compare(recorded, expected - {process.rank for process in processes})


def compare(ranks: Mapping[int, Recorded], ended: Collection[int] = ()) -> Finding | None:
    """Why ranks wait in a collective, or None if nothing has been recorded. ``ended`` are ranks
    that have left the job."""
    if not ranks:
        return None
    findings = [
        finding
        for group in _groups(ranks)
        if (finding := _of_group(group, ranks, ended)) is not None
    ]
    if not findings:
        return Finding(Kind.OUTSIDE, tuple(sorted(ranks)))
    waiting = {rank for finding in findings for rank in finding.waiting}
    # Who waits elsewhere is no cause: the one that it waits for is.
    free = [one for one in findings if not set(one.ranks) <= waiting or one.kind in MISMATCHES]
    if free:
        return min(free, key=lambda one: (one.kind not in MISMATCHES, one.since))
    first = min(findings, key=lambda one: one.since)
    second = next((one for one in findings if set(one.waiting) & set(first.ranks)), None)
    # Ranks are asked one after the other: those that go on may seem to wait for one another.
    first_answer = min(ranks[rank].at for rank in waiting)
    together = max(one.since for one in findings) <= first_answer
    if first.kind is Kind.NETWORK or second is None or second is first or not together:
        return first
    assert second.entry is not None
    other = second.entry._replace(group=_group_text(second.group))
    return first._replace(kind=Kind.GROUPS, other=other)


def last(recorded: Recorded) -> list[Entry]:
    """The last collective of each of its groups, with the group's name for people."""
    names = {group.name: _group_text(group) for group in recorded.groups}
    newest = {entry.group: entry for entry in recorded.entries}
    return [entry._replace(group=names.get(name, name)) for name, entry in newest.items()]


def _groups(ranks: Mapping[int, Recorded]) -> list[Group]:
    """All groups. Groups of different ranks may have the same name."""
    return list({group[::2]: group for one in ranks.values() for group in one.groups}.values())


def _of_group(
    group: Group, ranks: Mapping[int, Recorded], ended: Collection[int]
) -> Finding | None:
    """What keeps the first collective of the group that somebody waits in, or None."""
    called = {rank: _calls(group, ranks[rank]) for rank in group.ranks if rank in ranks}
    first = {
        rank: min(pending)
        for rank, calls in called.items()
        if (pending := [number for number, entry in calls.items() if entry.pending])
    }
    if not first:
        return None
    number = min(first.values())
    here = {rank: calls[number] for rank, calls in called.items() if number in calls}
    waiting = tuple(sorted(rank for rank, entry in here.items() if entry.pending))
    different = _different(group, here)
    if different is not None:
        return different._replace(waiting=waiting)
    entry = max((here[rank] for rank in waiting), key=lambda call: call.since)
    missing = [rank for rank, calls in called.items() if number > max(calls, default=0)]
    silent = [rank for rank in group.ranks if rank not in ranks and rank not in ended]
    gone = tuple(rank for rank in group.ranks if rank not in ranks and rank in ended)
    if missing:
        ranks_missing = tuple(sorted(missing))
        return Finding(Kind.NOT_CALLED, ranks_missing, waiting, group, entry, ended=gone)
    if silent:
        return Finding(Kind.SILENT, tuple(silent), waiting, group, entry, ended=gone)
    if gone:
        return Finding(Kind.GONE, gone, waiting, group, entry)
    return Finding(Kind.NETWORK, waiting, waiting, group, entry)


def _calls(group: Group, recorded: Recorded) -> dict[int, Entry]:
    if group[::2] not in {one[::2] for one in recorded.groups}:
        return {}
    return {entry.number: entry for entry in recorded.entries if entry.group == group.name}


def _different(group: Group, here: Mapping[int, Entry]) -> Finding | None:
    """Who has called something else than most under one number; the last ones of a tie."""
    for kind, feature in _FEATURES.items():
        by_value: dict[Any, list[int]] = {}
        for rank, entry in sorted(here.items()):
            by_value.setdefault(feature(entry), []).append(rank)
        if len(by_value) > 1:
            most = max(by_value.values(), key=len)
            odd = [rank for rank in here if rank not in most]
            entry, other = here[most[0]], here[min(odd)]
            return Finding(kind, tuple(sorted(odd)), (), group, entry, other, same=tuple(most))
    return None


def _shape(entry: Entry) -> object:
    """The sizes, where they have to be equal."""
    if any(word in entry.operation for word in _UNEVEN):
        return None
    return entry.sizes if any(word in entry.operation for word in _SAME_SIZES) else None


_FEATURES: dict[Kind, Callable[[Entry], object]] = {
    Kind.OPERATION: lambda entry: entry.operation,
    Kind.TYPE: lambda entry: entry.types,
    Kind.SHAPE: _shape,
}


# ---------------------------------------------------------------- words


def sentence(
    finding: Finding, write_time: Callable[[float], str], processes: Iterable[Process] = ()
) -> str:
    """The finding for people. ``processes`` tell what ranks do now."""
    who = _subject(finding.ranks)
    entry, other = finding.entry, finding.other
    if entry is None:
        return f"{who} {_verb(finding.ranks, 'is', 'are')} in no collective"
    name = _name(entry, _group_text(finding.group))
    wait = _verb(finding.waiting, "waits", "wait")
    since = write_time(entry.since)
    waiting = f"{_subject(finding.waiting)} {wait} in it since {since}"
    if finding.kind in MISMATCHES and other is not None:
        at = f" ({other.place})" if other.place else ""
        ends = f"{_subject(finding.waiting)} {wait} since {since}"
        return (
            f"{who} called {other.operation} #{other.number}{_tensors(other)}{at} where "
            f"{_subject(finding.same)} called {name}; {ends if finding.waiting else 'nobody waits'}"
        )
    if finding.kind is Kind.NETWORK:
        return f"{who} called {name}, and it has not ended since {since}"
    has = _verb(finding.ranks, "has", "have")
    if finding.kind is Kind.GONE:
        return f"{who} {has} ended; {_subject(finding.waiting)} {wait} since {since} in {name}"
    gone = ""
    if finding.ended:
        gone = f", and {_subject(finding.ended)} {_verb(finding.ended, 'has', 'have')} ended"
    if finding.kind is Kind.SILENT:
        does = _verb(finding.ranks, "does", "do")
        return f"{who} {does} not answer{gone}; {waiting}: {name}"
    if finding.kind is Kind.GROUPS and other is not None:
        return f"{who} {has} not called {name}, but {_name(other, other.group)}; {waiting}"
    now = next((doing(p.frames) for p in processes if _is_rank(p, finding.ranks)), "")
    return f"{who} {has} not called {name}{gone}; {waiting}{f', and {who} is {now}' if now else ''}"


def of_aborted(lines: Iterable[str], finding: Finding | None) -> str:
    """What the last lines of a rank that gloo aborted, and the collectives of the ranks that it
    left, say of it. What it called itself is not known. Empty for other lines."""
    sizes = next((match for line in lines if (match := _TOO_MUCH_DATA.search(line))), None)
    if sizes is None:
        return ""
    text = (
        f"another rank sent {sizes[1]} bytes into a collective where this one expected {sizes[2]}: "
        "their shapes, types or operations differ"
    )
    if finding is None or finding.entry is None or finding.kind in MISMATCHES:
        return text
    name = _name(finding.entry, _group_text(finding.group))
    return f"{text}; {_subject(finding.waiting)} called {name}"


def facts(finding: Finding) -> ErrorCollective | None:
    """The finding as data; None without a collective. Whether ranks that ended called it is not
    known."""
    if finding.entry is None:
        return None
    unknown = finding.kind in (Kind.GONE, Kind.NETWORK, Kind.SILENT)
    if finding.kind in (Kind.SHAPE, Kind.TYPE):
        unknown = len(finding.same) == len(finding.ranks)  # nobody knows which of them is right
    missing = () if unknown else finding.ranks
    return {
        "op": finding.entry.operation,
        "sequence": finding.entry.number,
        "group": _group_text(finding.group),
        "missing_ranks": list(missing),
        "waiting_ranks": list(finding.waiting),
        "where": finding.entry.place,
    }


def _name(entry: Entry, group: str) -> str:
    place = f", {entry.place}" if entry.place else ""
    return f"{entry.operation} #{entry.number}{_tensors(entry)} of {group}{place}"


def _is_rank(process: Process, ranks: Collection[int]) -> bool:
    return len(ranks) == 1 and process.rank in ranks and process.collectives is not None


def _subject(ranks: Collection[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {numbers(sorted(ranks)).replace(',', ', ')}"


def _verb(ranks: Collection[int], of_one: str, of_several: str) -> str:
    return of_one if len(ranks) == 1 else of_several


def _tensors(entry: Entry) -> str:
    """The sizes, and the type if it is not the usual one: ` [8] Long`."""
    sizes = ", ".join(str(list(size)) for size in entry.sizes[:3])
    unusual = [kind for kind in dict.fromkeys(entry.types) if kind != "Float"]
    return f"{' ' if sizes else ''}{sizes}{' ' if unusual else ''}{', '.join(unusual)}"


def _group_text(group: Group | None) -> str:
    if group is None or group.title == "default_pg" or (group.name == "0" and not group.title):
        return "the default group"
    named = group.title and group.title != "undefined"
    return f"group {group.title if named else group.name}"
