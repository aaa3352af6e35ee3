"""The error of a job that did not complete, as its record stores it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from allranks.api.jobs import ErrorCollective
from allranks.core.attempt_end import Failure
from allranks.core.diagnosis.causes import TABLE, Cause
from allranks.core.diagnosis.explain import Explanation, as_json
from allranks.core.distributions import topology
from allranks.core.lifecycle import pending_reason
from allranks.events import Kind
from allranks.server.jobs.explain import explanation_of
from allranks.server.jobs.hosts import host_of, with_host
from allranks.settings import Home
from allranks.statuses import VERDICTS, Blame, JobStatus, Reason, Verdict
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.jobs import JobError

# Reasons where a rank itself failed.
_BY_RANKS = (Reason.RANK_EXITED, Reason.RANK_KILLED, Reason.OUT_OF_MEMORY, Reason.PEER_FAILED)


def error_of(row: JobRow, failure: Failure, records: Records, home: Home) -> JobError:
    """What went wrong, and the hint."""
    verdict = VERDICTS[failure.reason]
    why = explanation_of(row, records, home) if verdict.outcome is JobStatus.FAILED else None
    if failure.reason is Reason.GANG_REFUSED:
        failure = failure._replace(hint=_refusal_hint(row, records))
    why_canceled = _why_canceled(row, records) if failure.reason is Reason.CANCELED else ""
    sentence = why_canceled or verdict.sentence
    error: JobError = {
        "reason": failure.reason,
        "blame": Blame.INFRASTRUCTURE if failure.passing else verdict.blame,
        "message": with_host(row, _sentence(row, failure, sentence)),
        "hint": _hint(row, failure, verdict, why),
        "node": failure.node,
        "rank": failure.rank,
    }
    if (collective := failure.collective or _collective(row, failure, records)) is not None:
        error["collective"] = collective
    return error if why is None else {**error, **as_json(why, partial(host_of, row))}


def _collective(row: JobRow, failure: Failure, records: Records) -> ErrorCollective | None:
    """In which collective the ranks of the failed node disagreed, as its agent saw it."""
    place = (row.record.attempt, failure.node)
    events = [stored.event for stored in records.events(row.name)]
    ends = [e for e in events if e.kind in (Kind.HELD, Kind.ENDED) and (e.attempt, e.node) == place]
    data = next((e.data["collective"] for e in ends if "collective" in e.data), None)
    try:
        return TypeAdapter(ErrorCollective).validate_python(data, strict=True)
    except ValidationError:  # a rank can write what its agent sends
        return None


def _hint(row: JobRow, failure: Failure, verdict: Verdict, why: Explanation | None) -> str:
    """The hint: the fix of the cause, then the general hint of the reason."""
    is_session = row.spec.get("session") is not None and row.parent is None
    if is_session and "--max-attempts" in verdict.hint:
        # `allranks dev` does not restart what people were working on.
        return f"its files: allranks job files {row.name}; start another one: allranks dev"
    text = verdict.hint if failure.rank is not None else verdict.hint.replace(" --rank {rank}", "")
    shown = None if why is None or why.evidence is None else why.evidence.rank
    general = text.format(job=row.name, rank=failure.rank if shown is None else shown)
    if failure.reason in (Reason.SETUP_FAILED, Reason.GANG_REFUSED) and failure.hint:
        return failure.hint
    if failure.cause and why is not None:
        return why.fix
    own = failure.hint
    cause = why.cause if why is not None and failure.reason in _BY_RANKS else Cause.UNKNOWN
    unclear = cause is Cause.UNKNOWN or TABLE[cause].echo
    if not own and unclear and topology.together(row.plan.task):
        own = pending_reason.left_early(row.record, failure.at)
    if not own and cause is not Cause.UNKNOWN and why is not None:
        own = why.fix
    return f"{own}; {general}" if own else general


def _refusal_hint(row: JobRow, records: Records) -> str:
    """What the engine advised when it refused the gang."""
    refusals = [
        event.event for event in records.events(row.name) if event.event.kind is Kind.REFUSED
    ]
    return str(refusals[-1].data.get("hint") or "") if refusals else ""


def _sentence(row: JobRow, failure: Failure, sentence: str) -> str:
    if failure.reason is Reason.NODE_LOST and failure.node is not None:
        return f"node {failure.node} was lost: {failure.message}"
    if failure.reason is row.record.gone is Reason.PREEMPTED and not failure.message:
        return f"{sentence}: {row.record.why}" if row.record.why else sentence
    return failure.message or sentence


def _why_canceled(row: JobRow, records: Records) -> str:
    """Why the server canceled the job; empty if a user did."""
    events = (each.event for each in records.events(row.name))
    first = next((event for event in events if event.kind is Kind.CANCEL_ASKED), None)
    return "" if first is None else str(first.data.get("why", ""))
