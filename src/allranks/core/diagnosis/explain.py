"""Why an attempt failed: the rank and the log line that explain the failure. Pure.

UNKNOWN is preferred to a guess. The first failure by time is explained, unless it may be the
consequence of another (an echo): then a cause is searched on the other ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.core.diagnosis import log_tail, tracebacks
from allranks.core.diagnosis.causes import TABLE, Cause
from allranks.core.diagnosis.log_tail import Ending, Finding
from allranks.masking import without_credentials
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.api import jobs as api

# A file system with fewer free bytes counts as full.
_FULL = 1 << 20
# Allowance in seconds for clock differences and for the delivery of signals.
_SLACK = 0.5
_STOPS = ("SIGTERM", "SIGKILL")
# Lines of a rank that printed no reason.
_LAST = 12
_ENDERS = "SIGTERM, SIGINT or SIGHUP"
_STOPPED = (Cause.TERMINATED, Cause.KILLED)
# Causes of which two jobs have the same only if exception and place are the same, too.
_OF_MANY_KINDS = {
    *(Cause.SCRIPT_EXCEPTION, Cause.ASSERTION, Cause.SYNTAX_ERROR, Cause.SETUP_FAILED),
    *(Cause.MODULE_MISSING, Cause.IMPORT_FAILED, Cause.FILE_MISSING, Cause.COMMAND_NOT_FOUND),
    *(Cause.BAD_ARGUMENT, Cause.PLATFORM_ERROR),
}
# The working folder of an attempt on its node.
_WORK = re.compile(r"^.*/(?:attempt-\d+|working/node-\d+)/work/")


class RankEnd(NamedTuple):
    """How a rank ended, and the last lines of its log. ``code`` is None if its end was not
    reported. ``number`` is the line number of the first of ``lines``, from 1; 0 if the lines in
    the ``skipped`` bytes before it were not counted. ``behind_pipe``: as in
    api.events.RankEndedData."""

    rank: int
    node: int
    code: int | None = None
    signal: str | None = None
    at: float = 0.0
    lines: tuple[str, ...] = ()
    number: int = 1
    skipped: int = 0
    behind_pipe: bool = False


class FailedAttempt(NamedTuple):
    """What is known about a failed attempt: the ``node`` and ``rank`` that failed first, and per
    node the ``facts`` that its agent recorded at the time of the failure. ``cause``: as in
    ``Failure``."""

    reason: Reason
    node: int | None = None
    rank: int | None = None
    message: str = ""
    ranks: tuple[RankEnd, ...] = ()
    facts: Mapping[int, Mapping[str, Any]] = {}
    cause: str = ""


class Evidence(NamedTuple):
    """The line that shows the cause: its number in the log of a rank, and ``where`` in the user's
    code it was raised. ``rank`` and ``number`` are None if no rank printed it. ``at`` is its index
    in RankEnd.lines."""

    line: str
    rank: int | None = None
    node: int | None = None
    number: int | None = None
    where: str = ""
    at: int | None = None


class Explanation(NamedTuple):
    """Why an attempt failed. ``exception`` is the exception's name, if it was one."""

    cause: Cause
    sentence: str
    fix: str
    retryable: bool | None
    evidence: Evidence | None = None
    exception: str = ""


class RankOutcome(NamedTuple):
    """How another rank ended, as text."""

    rank: int
    node: int
    said: str


# Reasons that determine the cause, whatever ranks printed.
_BY_REASON: Mapping[Reason, Cause] = {
    Reason.SETUP_FAILED: Cause.SETUP_FAILED,
    Reason.OUTPUTS_LOST: Cause.OUTPUTS_LOST,
    Reason.NODE_LOST: Cause.NODE_LOST,
    Reason.PREEMPTED: Cause.PREEMPTED,
    Reason.TIME_LIMIT: Cause.TIME_LIMIT,
    Reason.NO_PROGRESS: Cause.NO_PROGRESS,
    Reason.GANG_REFUSED: Cause.GANG_REFUSED,
    Reason.PLATFORM_ERROR: Cause.PLATFORM_ERROR,
    Reason.PORT_TAKEN: Cause.PORT_TAKEN,
    Reason.PORT_CONFLICT: Cause.PORT_CONFLICT,
    Reason.HANG: Cause.HANG,
}
_BY_RANKS = ("RANK_EXITED", "RANK_KILLED", "OUT_OF_MEMORY", "PEER_FAILED")


def explain(attempt: FailedAttempt) -> Explanation:
    """The cause of the attempt's failure; UNKNOWN if it is not certain."""
    if attempt.reason not in _BY_RANKS:
        cause = Cause(attempt.cause or _BY_REASON.get(attempt.reason, Cause.UNKNOWN))
        if cause is Cause.SETUP_FAILED and "No space left on device" in attempt.message:
            cause = Cause.DISK_FULL
        message = attempt.message
        return _explanation(
            cause, Evidence(message, attempt.rank, attempt.node) if message else None
        )
    first = _first_failed(attempt)
    if attempt.reason is Reason.OUT_OF_MEMORY:
        return _out_of_memory(attempt, first)
    if first is None:
        return _explanation(Cause.UNKNOWN)
    finding = _finding(attempt, first)
    if finding is not None and attempt.rank is None and finding.cause in _STOPPED:
        finding = None  # no rank failed: their launcher, such as mpirun, stopped the others
    if finding is not None and finding.is_echo:
        first, finding = _origin(attempt, first, finding)
    if finding is None:
        return _explanation(Cause.UNKNOWN)
    if finding.cause is Cause.OUT_OF_MEMORY and finding.at is None:
        return _out_of_memory(attempt, first)
    return _with_evidence(attempt, first, finding)


def _first_failed(attempt: FailedAttempt) -> RankEnd | None:
    """The rank that failed first, as its agent reported it."""
    failed = [rank for rank in attempt.ranks if rank.code]
    by_time = min(failed, key=lambda rank: rank.at, default=None)
    return next((rank for rank in attempt.ranks if rank.rank == attempt.rank), by_time)


def _finding(attempt: FailedAttempt, rank: RankEnd) -> Finding | None:
    """The cause of a rank's failure, corrected by the free space on its node."""
    facts = attempt.facts.get(rank.node, {})
    kills = int(facts.get("oom_kills") or 0)
    ending = Ending(rank.code, rank.signal, kills, rank.behind_pipe)
    finding = log_tail.finding(rank.lines, ending)
    shm, disk = (facts.get(name, _FULL) for name in ("shm_free", "disk_free"))
    if finding is not None and finding.cause is Cause.BUS_ERROR and shm < _FULL:
        return finding._replace(cause=Cause.SHARED_MEMORY_FULL)
    # A full disk may have kept the log from growing, so that it shows no error.
    if finding is None and rank.code and rank.signal is None and disk < _FULL:
        return Finding(Cause.DISK_FULL)
    return finding


def _origin(attempt: FailedAttempt, first: RankEnd, echo: Finding) -> tuple[RankEnd, Finding]:
    """The rank whose failure explains an echo: the earliest other with a cause of its own.
    Ranks that were stopped may already have had one."""
    for rank in sorted(attempt.ranks, key=lambda end: (end.at or float("inf"), end.rank)):
        if rank is first or rank.code == 0:
            continue
        if rank.code is None or _was_stopped(rank, first):
            finding = log_tail.finding_before_stop(rank.lines)
        else:
            finding = _finding(attempt, rank)
        if finding is not None and not finding.is_echo and finding.cause is not Cause.UNKNOWN:
            return rank, finding
    return first, echo


def _was_stopped(rank: RankEnd, first: RankEnd) -> bool:
    """Whether the rank was ended because ``first`` had failed."""
    return rank.signal in _STOPS and rank.at >= first.at - _SLACK


def _out_of_memory(attempt: FailedAttempt, rank: RankEnd | None) -> Explanation:
    """The out-of-memory killer, as the agent or the engine reported it."""
    node = attempt.node if rank is None else rank.node
    facts = attempt.facts.get(node, {}) if node is not None else {}
    line = facts.get("oom_line") or attempt.message
    if not facts.get("oom_line") and (kills := facts.get("oom_kills")):
        line = f"out-of-memory kills that the kernel counted at that time: {kills}"
    evidence = Evidence(line, rank.rank if rank is not None else None, node) if line else None
    return _explanation(Cause.OUT_OF_MEMORY, evidence)


def _with_evidence(attempt: FailedAttempt, rank: RankEnd, finding: Finding) -> Explanation:
    facts = attempt.facts.get(rank.node, {})
    line, number = "", None
    if finding.at is not None:
        line = tracebacks.undrawn(rank.lines[finding.at])
        number = rank.number + finding.at if rank.number else None
    elif rank.signal:
        line = f"ended by {rank.signal}"
    elif finding.cause is Cause.DISK_FULL:
        free = facts.get("disk_free")
        line = f"exited with code {rank.code} while the disk of its log had {free} bytes free"
    where = _WORK.sub("", finding.where)
    evidence = Evidence(line.strip(), rank.rank, rank.node, number, where, finding.at)
    fix = finding.fix or TABLE[finding.cause].fix
    if where:
        fix = fix.replace("the line named in the error", where)
    if finding.cause is Cause.MODULE_MISSING and (python := facts.get("python")):
        fix += f"; the job ran with {python}"
    explanation = _explanation(finding.cause, evidence if line else None, fix, finding.exception)
    signal = "SIGINT" if finding.exception == "KeyboardInterrupt" else rank.signal
    if finding.cause is Cause.TERMINATED and signal:
        return explanation._replace(sentence=explanation.sentence.replace(_ENDERS, signal))
    return explanation


def _explanation(
    cause: Cause, evidence: Evidence | None = None, fix: str = "", exception: str = ""
) -> Explanation:
    info = TABLE[cause]
    return Explanation(cause, info.sentence, fix or info.fix, info.retryable, evidence, exception)


# ---------------------------------------------------------------- job explain


def same_failure(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two errors with the keys of ``as_json`` have one cause that is not UNKNOWN, and if it
    has many kinds, the same exception at the same place, or else the same line."""
    cause = one.get("cause")
    if cause in (None, Cause.UNKNOWN) or other.get("cause") != cause:
        return False
    return cause not in _OF_MANY_KINDS or _kind(one) == _kind(other)


def _kind(error: Mapping[str, Any]) -> tuple[str | None, str]:
    evidence = error.get("evidence") or {}
    return error.get("exception"), evidence.get("where") or evidence.get("line", "")


def other_ranks(attempt: FailedAttempt, explanation: Explanation) -> list[RankOutcome]:
    """How the ranks that did not fail first ended, in order of time."""
    evidence = explanation.evidence
    rank = evidence.rank if evidence is not None else attempt.rank
    first = next((end for end in attempt.ranks if end.rank == rank), None)
    if first is None:
        return []
    others = [end for end in attempt.ranks if end is not first]
    others.sort(key=lambda end: (end.at or float("inf"), end.rank))
    return [RankOutcome(r.rank, r.node, _outcome(attempt, r, first)) for r in others]


def _outcome(attempt: FailedAttempt, rank: RankEnd, first: RankEnd) -> str:
    if rank.code is None:
        return "its end was not reported"
    if rank.code == 0:
        return "exited with code 0"
    if _was_stopped(rank, first):
        text, finding = "was stopped", log_tail.finding_before_stop(rank.lines)
    else:
        text = f"was ended by {rank.signal}" if rank.signal else f"exited with code {rank.code}"
        finding = _finding(attempt, rank)
    if finding is None or finding.at is None:
        return text
    return f"{text}: {rank.lines[finding.at].strip()}"


def context_lines(attempt: FailedAttempt, explanation: Explanation) -> tuple[int | None, list[str]]:
    """A rank and lines of its log: the evidence with 16 lines before and 3 after it; without one,
    the last lines of the rank that failed first."""
    evidence = explanation.evidence
    if evidence is not None and evidence.at is not None:
        rank = next((r for r in attempt.ranks if r.rank == evidence.rank), None)
        if rank is not None:
            after = list(rank.lines[evidence.at : evidence.at + 4])
            while not after[-1].strip() and len(after) > 1:
                after.pop()
            return rank.rank, [*rank.lines[max(0, evidence.at - 16) : evidence.at], *after]
    first = _first_failed(attempt) if attempt.reason in _BY_RANKS else None
    if first is None:
        return None, []
    return first.rank, [line for line in first.lines if line.strip()][-_LAST:]


def as_json(
    explanation: Explanation, host_of: Callable[[int | None], str | None]
) -> api.Explanation:
    """The keys that an explanation adds to the job's error. ``host_of`` names a node's host."""
    evidence: api.Evidence | None = None
    if explanation.evidence is not None:
        evidence = {
            "line": without_credentials(explanation.evidence.line),
            "rank": explanation.evidence.rank,
            "node": explanation.evidence.node,
            "host": host_of(explanation.evidence.node),
            "number": explanation.evidence.number,
            "where": explanation.evidence.where,
        }
    return {
        "cause": str(explanation.cause),
        "explanation": explanation.sentence,
        "evidence": evidence,
        "retryable": explanation.retryable,
        "exception": explanation.exception or None,
    }
