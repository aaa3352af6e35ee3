"""Why a job is not making progress, as text. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from allranks.core.amounts import counted
from allranks.core.lifecycle.decide import Job, back_off, failure, held_until
from allranks.core.lifecycle.phases import WAITS
from allranks.statuses import HELD, JobStatus, NodeState, Purpose, Reason

# Seconds after which the other ranks may be waiting in vain for a rank that has ended.
LEFT_BEHIND = 30.0
_EQUAL_STEPS = "make sure that every rank takes the same number of steps"


def pending_reason(job: Job, now: float, together: bool = True) -> str:
    """Explain why a job is not making progress; empty if there is nothing to explain.
    ``together``: its ranks wait for each other."""
    if restart := _restart(job, now):
        return restart
    if held := _held(job):
        return held
    if job.status is JobStatus.PREPARING and (doing := _setup(job)):
        return doing
    if saving := _saving(job):
        return f"node {saving[0]} {job.nodes[saving[0]].doing}"
    running = job.status is JobStatus.RUNNING and any(n.reason is None for n in job.nodes)
    done = _done_by(job, now - LEFT_BEHIND)
    if not (running and done and together):
        return job.why
    return (
        f"{done} exited with code 0 more than {LEFT_BEHIND:.0f} s ago while others still run; if "
        f"they wait for it, they wait forever: {_EQUAL_STEPS}"
    )


def _held(job: Job) -> str:
    """Until when a failed attempt stays as it is, and how it failed; empty if none does."""
    until, first = held_until(job), failure(job)
    if until is None or first is None:
        return ""
    time = datetime.fromtimestamp(until, UTC).strftime("%H:%M:%S UTC")
    return f"{HELD} {time}: {first.message}"


def shown_status(job: Job) -> JobStatus:
    """The status for people: a job whose ranks are done and whose files wait for space is
    Finalizing, although its end is not decided yet."""
    return JobStatus.FINALIZING if _saving(job) else job.status


def _saving(job: Job) -> list[int]:
    """The nodes that wait for space to save what their ranks wrote, once no rank runs."""
    nodes = job.nodes if job.status is JobStatus.RUNNING else ()
    waiting = [i for i, n in enumerate(nodes) if n.reason is None and n.doing.startswith(WAITS)]
    ended = all(node.reason is not None or i in waiting for i, node in enumerate(nodes))
    return waiting if ended else []


def _restart(job: Job, now: float) -> str:
    """When the next attempt starts; empty if none is scheduled."""
    due, why = job.not_before, job.previous
    if job.then is not None and job.then.purpose is Purpose.REGROUP and job.closing_at is not None:
        due, why = job.closing_at + back_off(job), job.then.reason
    elif job.status is not JobStatus.NOT_STARTED:
        return ""
    seconds = math.ceil(due - now)
    return f"restarts in {seconds} s after {why or Reason.NODE_LOST}" if seconds > 0 else ""


def _setup(job: Job) -> str:
    """The slow step of preparation on its nodes; empty if there is none."""
    busy = [i for i, n in enumerate(job.nodes) if n.state is NodeState.SETUP and n.doing]
    if not busy:
        return ""
    others = len(busy) - 1
    more = f" (and {counted(others, 'more node')})" if others else ""
    return f"node {busy[0]} {job.nodes[busy[0]].doing}{more}"


def left_early(job: Job, at: float) -> str:
    """A hint for a failure at time ``at`` after other ranks had succeeded; empty if none had. That
    they are the reason is not known."""
    done = _done_by(job, at)
    return (
        done and f"{done} had already exited with code 0; if others waited for it, {_EQUAL_STEPS}"
    )


def _done_by(job: Job, at: float) -> str:
    """The ranks that exited with 0, if the last of them did before ``at``; otherwise empty."""
    ended = sorted(rank for node in job.nodes for rank in node.finished)
    if not ended or max(node.finished_at for node in job.nodes) >= at:
        return ""
    return f"rank {ended[0]}" if len(ended) == 1 else f"rank {ended[0]} and {len(ended) - 1} more"
