"""Why an attempt failed: of all ranks' ends and last lines the one that explains the others. Pure.

Right or unknown: what is not certain is not said. The first failure by time is explained, unless it
may be the echo of another: then the other ranks are asked for a cause of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.masking import without_credentials
from allranks.plan.diagnosis import log_tail, tracebacks
from allranks.plan.diagnosis.causes import TABLE, Cause
from allranks.plan.diagnosis.log_tail import Ending, Finding
from allranks.statuses import Reason

# Below so many bytes a place has no room left for anything.
_NO_ROOM = 1 << 20
# Clocks of hosts apart, and a signal's way to all ranks of a node.
_ABOUT = 0.5
_STOPS = ("SIGTERM", "SIGKILL")
_STOPPED = (Cause.TERMINATED, Cause.KILLED)
# What a rank's working folder is called on its node.
_WORK = re.compile(r"^.*/attempt-\d+/work/")


class RankEnd(NamedTuple):
    """A rank of the attempt and the end of what it printed; ``code`` is None for one whose end
    nobody told. ``number`` is that of the first of ``lines`` in its log, from 1, or 0 where nobody
    has counted the lines of the ``skipped`` bytes before it."""

    rank: int
    node: int
    code: int | None = None
    signal: str | None = None
    at: float = 0.0
    lines: tuple[str, ...] = ()
    number: int = 1
    skipped: int = 0


class Known(NamedTuple):
    """All there is to know of an attempt that failed: for what ``reason``, on which ``node``, by
    which ``rank`` first, and for each node what its agent saw at the moment of the failure."""

    reason: Reason
    node: int | None = None
    rank: int | None = None
    message: str = ""
    ranks: tuple[RankEnd, ...] = ()
    facts: Mapping[int, Mapping[str, Any]] = {}

    @staticmethod
    def load(data: Mapping[str, Any]) -> Known:
        """What ``pack`` made into JSON."""
        ranks = tuple(RankEnd(**{**r, "lines": tuple(r["lines"])}) for r in data["ranks"])
        facts = {int(node): told for node, told in data["facts"].items()}
        return Known(**{**data, "reason": Reason(data["reason"]), "ranks": ranks, "facts": facts})


class Evidence(NamedTuple):
    """The line that shows it, where it stands, and whose line of code raised it; for what no rank
    has printed ``rank`` or ``number`` is None. ``at`` is its index among the lines that are
    known."""

    line: str
    rank: int | None = None
    node: int | None = None
    number: int | None = None
    where: str = ""
    at: int | None = None


class Explanation(NamedTuple):
    """Why it failed. ``what`` is the name of the exception, where it was one."""

    cause: Cause
    sentence: str
    fix: str
    retryable: bool | None
    evidence: Evidence | None = None
    what: str = ""


class Followed(NamedTuple):
    """What became of another rank, in words."""

    rank: int
    node: int
    said: str


# What the reason alone says, whatever ranks have printed.
_BY_REASON: Mapping[Reason, Cause] = {
    Reason.SETUP_FAILED: Cause.SETUP_FAILED,
    Reason.OUTPUTS_LOST: Cause.OUTPUTS_LOST,
    Reason.NODE_LOST: Cause.NODE_LOST,
    Reason.PREEMPTED: Cause.PREEMPTED,
    Reason.TIME_LIMIT: Cause.TIME_LIMIT,
    Reason.GANG_REFUSED: Cause.GANG_REFUSED,
    Reason.PLATFORM_ERROR: Cause.PLATFORM_ERROR,
    Reason.PORT_TAKEN: Cause.PORT_TAKEN,
} | {each: Cause.HANG for each in Reason if each == "HANG"}
_BY_RANKS = ("RANK_EXITED", "RANK_KILLED", "OUT_OF_MEMORY", "PEER_FAILED")


def explain(known: Known) -> Explanation:
    """The cause of the attempt's failure, or that it is not known."""
    if known.reason not in _BY_RANKS:
        cause = _BY_REASON.get(known.reason, Cause.UNKNOWN)
        if cause is Cause.SETUP_FAILED and "No space left on device" in known.message:
            cause = Cause.DISK_FULL
        return _told(cause, evidence=_of_message(known))
    first = _first(known)
    if known.reason == "OUT_OF_MEMORY":
        return _out_of_memory(known, first)
    if first is None:
        return _told(Cause.UNKNOWN)
    found = _finding(known, first)
    if found is not None and known.rank is None and found.cause in _STOPPED:
        found = None  # no rank failed: who started them, as mpirun does, has stopped the others
    if found is not None and found.is_echo:
        first, found = _behind(known, first, found)
    if found is None:
        return _told(Cause.UNKNOWN)
    return _whole(known, first, found)


def _first(known: Known) -> RankEnd | None:
    """The rank that failed first, as its agent saw it."""
    named = [each for each in known.ranks if each.rank == known.rank]
    if named:
        return named[0]
    failed = [each for each in known.ranks if each.code]
    return min(failed, key=lambda each: each.at, default=None)


def _finding(known: Known, rank: RankEnd) -> Finding | None:
    facts = known.facts.get(rank.node, {})
    ending = Ending(rank.code, rank.signal, int(facts.get("oom_kills") or 0))
    return _roomless(log_tail.finding(rank.lines, ending), rank, facts)


def _behind(known: Known, first: RankEnd, found: Finding) -> tuple[RankEnd, Finding]:
    """The rank whose own failure explains an echo: the earliest of the others that has a cause of
    its own. Those that were stopped may have had one already."""
    for rank in sorted(known.ranks, key=lambda each: (each.at or float("inf"), each.rank)):
        if rank is first or rank.code == 0:
            continue
        stopped = rank.code is None or (rank.signal in _STOPS and rank.at >= first.at - _ABOUT)
        theirs = log_tail.standing(rank.lines) if stopped else _finding(known, rank)
        if theirs is not None and not theirs.is_echo and theirs.cause is not Cause.UNKNOWN:
            return rank, theirs
    return first, found


def _roomless(found: Finding | None, rank: RankEnd, facts: Mapping[str, Any]) -> Finding | None:
    """What only the room that was left tells: a bus error, a file that was not written, last words
    that no log had room for."""
    shm, disk = (facts.get(each, _NO_ROOM) for each in ("shm_free", "disk_free"))
    if found is not None and found.cause is Cause.BUS_ERROR and shm < _NO_ROOM:
        return found._replace(
            cause=Cause.SHARED_MEMORY_FULL, fix=TABLE[Cause.SHARED_MEMORY_FULL].fix
        )
    silent = found is None and rank.code and rank.signal is None
    if silent and disk < _NO_ROOM:
        return Finding(Cause.DISK_FULL, TABLE[Cause.DISK_FULL].fix)
    return found


def _out_of_memory(known: Known, first: RankEnd | None) -> Explanation:
    """The agent has seen the kernel do it, or the engine says so."""
    node = known.node if first is None else first.node
    facts = known.facts.get(node, {}) if node is not None else {}
    said = facts.get("oom_line") or known.message
    if not facts.get("oom_line") and (kills := facts.get("oom_kills")):
        said = f"the kernel counted {kills} killed for want of memory at that moment"
    evidence = Evidence(said, first.rank if first is not None else None, node) if said else None
    return _told(Cause.OUT_OF_MEMORY, evidence=evidence)


def _whole(known: Known, rank: RankEnd, found: Finding) -> Explanation:
    if found.cause is Cause.OUT_OF_MEMORY and found.at is None:
        return _out_of_memory(known, rank)
    line, number = "", None
    if found.at is not None:
        line = tracebacks.undrawn(rank.lines[found.at])
        number = rank.number + found.at if rank.number else None
    elif rank.signal:
        line = f"ended by {rank.signal}"
    elif found.cause is Cause.DISK_FULL:
        left = known.facts.get(rank.node, {}).get("disk_free")
        line = (
            f"exited with code {rank.code} while its disk had {left} bytes left, its log included"
        )
    evidence = None
    if line:
        where = _WORK.sub("", found.where)
        evidence = Evidence(line.strip(), rank.rank, rank.node, number, where, found.at)
    fix = found.fix
    if evidence is not None and evidence.where:
        fix = fix.replace("look at the line it names", f"look at {evidence.where}")
    python = known.facts.get(rank.node, {}).get("python")
    if found.cause is Cause.MODULE_MISSING and python:
        fix += f"; it ran under {python}"
    return _told(found.cause, fix, evidence, found.what)


def _told(
    cause: Cause, fix: str = "", evidence: Evidence | None = None, what: str = ""
) -> Explanation:
    told = TABLE[cause]
    return Explanation(cause, told.sentence, fix or told.fix, told.retryable, evidence, what)


def _of_message(known: Known) -> Evidence | None:
    return Evidence(known.message, known.rank, known.node) if known.message else None


# ---------------------------------------------------------------- the longer story


def followed(known: Known, explained: Explanation) -> list[Followed]:
    """What became of the ranks that did not fail first, in the order of their ends."""
    rank = explained.evidence.rank if explained.evidence is not None else known.rank
    first = next((each for each in known.ranks if each.rank == rank), None)
    others = [each for each in known.ranks if first is not None and each is not first]
    told = []
    for each in sorted(others, key=lambda end: (end.at or float("inf"), end.rank)):
        said = _became(known, each, first)
        told.append(Followed(each.rank, each.node, said))
    return told


def _became(known: Known, rank: RankEnd, first: RankEnd | None) -> str:
    if rank.code is None:
        return "its end was not told"
    if rank.code == 0:
        return "ended with exit code 0"
    how = f"was ended by {rank.signal}" if rank.signal else f"exited with code {rank.code}"
    later = first is None or rank.at >= first.at - _ABOUT
    if rank.signal in _STOPS and later:
        found = log_tail.standing(rank.lines)
        how = "was stopped"
    else:
        found = _finding(known, rank)
    if found is None or found.at is None:
        return how
    return f"{how}: {rank.lines[found.at].strip()}"


def around(known: Known, explained: Explanation, before: int = 16, after: int = 3) -> list[str]:
    """The lines of the log around the evidence; none where no rank has printed it."""
    evidence = explained.evidence
    rank = next((r for r in known.ranks if evidence and r.rank == evidence.rank), None)
    if rank is None or evidence is None or evidence.at is None:
        return []
    return list(rank.lines[max(0, evidence.at - before) : evidence.at + after + 1])


def as_json(explained: Explanation) -> dict[str, Any]:
    """What the record keeps of it, beside the error's own keys."""
    evidence = explained.evidence
    return {
        "cause": str(explained.cause),
        "explanation": explained.sentence,
        "evidence": _shown(evidence) if evidence is not None else None,
        "retryable": explained.retryable,
        "exception": explained.what or None,
    }


def _shown(evidence: Evidence) -> dict[str, Any]:
    found = evidence._asdict()
    del found["at"]
    return {**found, "line": without_credentials(evidence.line)}
