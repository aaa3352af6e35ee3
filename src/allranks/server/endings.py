"""How a job ended, as its record keeps it and people are told."""

from __future__ import annotations

from typing import Any

from allranks.plan import distributions, policy, standing
from allranks.states import SIGNALS, VERDICTS, Blame, JobStatus, Reason, Verdict
from allranks.store.records import JobRow


def how_it_ended(row: JobRow) -> dict[str, Any]:
    """How the job ended, as the FINISHED event records it and ``job show`` prints it."""
    failure = policy.outcome(row.record)
    verdict = VERDICTS[failure.reason]
    code = 0 if failure.reason is Reason.DONE else failure.code
    if verdict.outcome is JobStatus.COMPLETED:
        return {"status": verdict.outcome, "exit_code": code, "error": None}
    error = {
        "reason": failure.reason,
        "blame": Blame.INFRASTRUCTURE if failure.passing else verdict.blame,
        "message": _sentence(row, failure, verdict.sentence),
        "hint": _hint(row, failure, verdict),
        "node": failure.node,
        "rank": failure.rank,
    }
    return {"status": verdict.outcome, "exit_code": code, "error": error}


def _hint(row: JobRow, failure: policy.Failure, verdict: Verdict) -> str:
    """What the lines of the rank itself suggest comes before what follows from its end alone."""
    text = verdict.hint if failure.rank is not None else verdict.hint.replace(" --rank {rank}", "")
    general = text.format(job=row.name, rank=failure.rank)
    if failure.reason is Reason.SETUP_FAILED and failure.hint:
        return failure.hint
    own = failure.hint
    if not own and distributions.together(row.plan.task):
        own = standing.left_early(row.record, failure.at)
    own = own and f"{own}; "
    return own + SIGNALS.get(failure.code or 0, "") + general


def _sentence(row: JobRow, failure: policy.Failure, sentence: str) -> str:
    if failure.reason is Reason.NODE_LOST and failure.node is not None:
        place = row.record.nodes[failure.node].place
        host = f" ({place.host})" if place is not None and row.plan.server_address else ""
        return f"node {failure.node}{host} was lost: {failure.message}"
    return failure.message or sentence
