"""What each agent is to do, and what of its words the record takes in. Pure, as `policy`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from allranks.events import Event
from allranks.plan.lifecycle.decide import Job, is_gone
from allranks.statuses import TERMINAL, JobStatus, NodeState, Reason


def order(job: Job, node: int, launch: int, attempt: int) -> dict[str, Any]:
    """What the agent of ``node`` should do now, given which launch and attempt it is in."""
    state = job.nodes[node].state
    if launch != job.launch or job.status in TERMINAL or is_gone(job.nodes[node]):
        return {"do": "leave"}
    if is_ahead(job, attempt):
        return {"do": "wait"}
    if job.status is JobStatus.FINALIZING:
        assert job.then is not None
        again = job.then.purpose == "regroup"
        if attempt < job.attempt:
            return {"do": "prepare", "attempt": job.attempt} if again else {"do": "leave"}
        if state is NodeState.EXITED:
            return {"do": "wait"} if again else {"do": "leave"}
        return {"do": "stop", "why": _told(job.then.reason)}
    if attempt < job.attempt:
        return {"do": "prepare", "attempt": job.attempt}
    if job.status is JobStatus.RUNNING and state in (NodeState.READY, NodeState.RUNNING):
        places = [n.place for n in job.nodes]
        go = {"do": "go", "places": places, "started": job.started_at, "previous": job.previous}
        return go if job.doomed is None else {**go, "kill": job.doomed}
    return {"do": "wait"}


def is_ahead(job: Job, attempt: int) -> bool:
    """Whether that agent's attempt is one that a record restored from a backup has still to come
    to: by what the agents tell it once more, it will."""
    may_regroup = job.then is None or job.then.purpose == "regroup"
    return attempt > job.attempt and may_regroup


def accepted(job: Job, node: int, launch: int, said: Sequence[Event]) -> Sequence[Event]:
    """What of ``said``, which is in the agent's own order, the record takes in now. Not over a gap,
    nor of an attempt that it has to come to first: of a restored one agents know more."""
    if launch != job.launch or job.status in TERMINAL or is_gone(job.nodes[node]):
        return said  # nobody hears it: it is to leave
    if said and said[0].seq > job.nodes[node].seq + 1:
        return ()
    return [*itertools.takewhile(lambda event: not is_ahead(job, event.attempt), said)]


def _told(reason: Reason) -> Reason:
    """What a node that did not fail itself is to give as its own reason."""
    if reason in (Reason.DONE, Reason.CANCELED, Reason.TIME_LIMIT, Reason.PREEMPTED):
        return reason
    return Reason.PEER_FAILED
