"""Why a job is where it is, in words. Pure."""

from __future__ import annotations

import math

from allranks.plan.lifecycle.decide import Job, back_off
from allranks.statuses import JobStatus, NodeState, Reason

# Seconds after which a rank that is done while others run may be what those wait for.
LEFT_BEHIND = 30.0
_AS_MANY_STEPS = "every rank has to take as many steps as the others"


def pending_reason(job: Job, now: float, together: bool = True) -> str:
    """Why a job is where it is, in words, when there is something to say of it. ``together``: its
    ranks wait for one another."""
    at_work = job.status is JobStatus.RUNNING and any(n.reason is None for n in job.nodes)
    done = _done_by(job, now - LEFT_BEHIND)
    if waits := _waits(job, now):
        return waits
    if job.status is JobStatus.PREPARING and (doing := _doing(job)):
        return doing
    if not (at_work and done and together):
        return job.why
    return (
        f"{done} ended with exit code 0 a while ago and others still run; if those wait for it "
        f"they wait for ever: {_AS_MANY_STEPS}"
    )


def _waits(job: Job, now: float) -> str:
    """That its next attempt has a time; empty when it has none, or that has come."""
    due, why = job.not_before, job.previous
    if job.then is not None and job.then.purpose == "regroup" and job.closing_at is not None:
        due, why = job.closing_at + back_off(job), job.then.reason
    elif job.status is not JobStatus.NOT_STARTED:
        return ""
    left = math.ceil(due - now)
    return f"starts again in {left} s, after {why or Reason.NODE_LOST}" if left > 0 else ""


def _doing(job: Job) -> str:
    """What takes its nodes long before they are ready; empty when nothing does."""
    busy = [i for i, n in enumerate(job.nodes) if n.state is NodeState.SETUP and n.doing]
    if not busy:
        return ""
    others = len(busy) - 1
    as_well = f", as {'does' if others == 1 else 'do'} {others} more" if others else ""
    return f"node {busy[0]} {job.nodes[busy[0]].doing}{as_well}"


def left_early(job: Job, at: float) -> str:
    """What a failure at that time may come from, in words; empty when no rank was done by then."""
    done = _done_by(job, at)
    if not done:
        return ""
    said = f"{done} had ended with exit code 0 before, and who waits for one that is done fails"
    return f"{said}: {_AS_MANY_STEPS}"


def _done_by(job: Job, at: float) -> str:
    """Who ended with exit code 0, the last of them before ``at``; empty when nobody did."""
    ended = sorted(rank for node in job.nodes for rank in node.finished)
    if not ended or max(node.finished_at for node in job.nodes) >= at:
        return ""
    return f"rank {ended[0]}" if len(ended) == 1 else f"rank {ended[0]} and {len(ended) - 1} more"
