"""What each agent has to do, and which of its events the record accepts. Pure, like `decide`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from allranks.core.lifecycle.decide import Job, held_until, is_gone
from allranks.core.plan import Place
from allranks.events import Event
from allranks.statuses import TERMINAL, JobStatus, NodeState, Purpose, Reason

if TYPE_CHECKING:
    from allranks.api.agents import AttemptAssignment


def places(job: Job) -> tuple[Place | None, ...]:
    """Where the nodes are: part of the order to start, and the same for all."""
    return tuple(node.place and node.place._replace(python=None) for node in job.nodes)


def brief(job: Job, node: int, launch: int, attempt: int) -> AttemptAssignment:
    """The order without `places`, in a time that does not depend on the number of nodes."""
    state = job.nodes[node].state
    if launch != job.launch or job.status in TERMINAL or is_gone(job.nodes[node]):
        return {"do": "leave"}
    if is_ahead(job, attempt):
        return {"do": "wait"}
    if job.status is JobStatus.FINALIZING:
        assert job.then is not None
        again = job.then.purpose is Purpose.REGROUP
        if attempt < job.attempt:
            return {"do": "prepare", "attempt": job.attempt} if again else {"do": "leave"}
        if state is NodeState.EXITED:
            return {"do": "wait"} if again else {"do": "leave"}
        return {"do": "stop", "why": _reason_for_peers(job.then.reason)}
    if attempt < job.attempt:
        return {"do": "prepare", "attempt": job.attempt}
    if job.status is JobStatus.RUNNING and state in (NodeState.READY, NodeState.RUNNING):
        go: AttemptAssignment = {
            "do": "go",
            "started": job.started_at,
            "previous": job.previous,
        }
        if job.doomed is not None:
            go["kill"] = job.doomed
        if held_until(job) is not None:
            go["hold"] = True
        return go
    return {"do": "wait"}


def is_ahead(job: Job, attempt: int) -> bool:
    """Whether the agent is in a later attempt than the record. That happens after a restore from a
    backup; the record catches up as agents send their events again."""
    may_regroup = job.then is None or job.then.purpose is Purpose.REGROUP
    return attempt > job.attempt and may_regroup


def accepted(job: Job, node: int, launch: int, events: Sequence[Event]) -> Sequence[Event]:
    """The ``events`` that the record takes in now, in the agent's order: none after a gap, and none
    of an attempt that a restored record has not reached yet."""
    if launch != job.launch or job.status in TERMINAL or is_gone(job.nodes[node]):
        return events  # without effect: the agent has to leave
    if events and events[0].seq > job.nodes[node].seq + 1:
        return ()
    return [*itertools.takewhile(lambda event: not is_ahead(job, event.attempt), events)]


def _reason_for_peers(reason: Reason) -> Reason:
    """The reason that a node reports if it did not fail itself."""
    if reason in (Reason.DONE, Reason.CANCELED, Reason.TIME_LIMIT, Reason.PREEMPTED):
        return reason
    return Reason.PEER_FAILED
