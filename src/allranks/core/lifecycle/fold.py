"""The fold: the job after an event. Events of old launches, old attempts and lost nodes have no
effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allranks.core.attempt_end import Failure
from allranks.core.lifecycle.decide import Job, Node, Then, back_off, spent
from allranks.core.lifecycle.repeated_time_limits import Progress, Row
from allranks.core.packing import unpack
from allranks.core.plan import Place
from allranks.events import FROM_AGENTS, LEFTOVERS, Event, Kind
from allranks.statuses import TERMINAL, VERDICTS, GangState, JobStatus, NodeState, Purpose, Reason


def fold(job: Job, event: Event) -> Job:
    """The job after the event; the same object if the event has no effect."""
    if event.kind is Kind.RESUMED:
        return _resumed(job, event)
    if event.data.get("about") == LEFTOVERS:
        job = job._replace(leftovers=str(event.data.get("message", "")))
    if job.status in TERMINAL:
        # Of a run that goes on elsewhere.
        is_imported = event.kind is Kind.FINISHED and event.data.get("is_imported")
        return _finished(job, event) if is_imported else job
    if event.kind is Kind.CANCEL_ASKED:
        # Of the whole job, whatever launch the user had in mind.
        given_up = job.given_up or bool(event.data.get("force"))
        return job._replace(canceled=True, given_up=given_up)
    if event.launch != job.launch:
        return job
    if event.kind in FROM_AGENTS:
        return _preparing(_from_agent(job, event))
    return _preparing(_FROM_SERVER[event.kind](job, event))


def _resumed(job: Job, event: Event) -> Job:
    """A job with children goes on; its record is as after its start, which is now."""
    if job.status not in TERMINAL or job.nodes:
        return job
    return Job(nodes=(), status=JobStatus.RUNNING, started_at=event.at, went_at=event.at)


def _preparing(job: Job) -> Job:
    """The first hello makes the job Preparing, whether or not the engine has reported it up."""
    if job.status not in (JobStatus.QUEUED, JobStatus.PROVISIONING):
        return job
    if all(n.state in (NodeState.ABSENT, NodeState.LOST) for n in job.nodes):
        return job
    return job._replace(status=JobStatus.PREPARING)


def _from_agent(job: Job, event: Event) -> Job:
    if event.node is None or not 0 <= event.node < len(job.nodes):
        return job
    node = job.nodes[event.node]
    gone = node.left or node.state is NodeState.LOST
    if gone or (event.seq and event.seq <= node.seq):
        return job
    node = node._replace(seq=max(node.seq, event.seq))
    if event.kind is Kind.BYE:
        node = node._replace(state=NodeState.EXITED, left=True)
        if node.reason is None:
            reason = Reason.PEER_FAILED if job.status is JobStatus.FINALIZING else None
            node = node._replace(reason=reason, at=event.at, message="its agent left")
    elif event.attempt == job.attempt:
        node = _node_after(node, event)
    # Agents of one gang start together: the first hello starts the clock for the others'.
    return _with(job, event.node, node)._replace(up_at=job.up_at or event.at)


def _node_after(node: Node, event: Event) -> Node:
    data = event.data
    node = node._replace(attempt=event.attempt)
    if event.kind is Kind.HELLO:
        return node._replace(state=NodeState.SETUP) if node.reason is None else node
    if event.kind is Kind.NOTE and data.get("phase"):
        phase, at = data["phase"], data.get("since") or event.at
        return node._replace(doing=data.get("doing") or "", phase=phase, phase_at=at)
    if event.kind is Kind.NOTE and "doing" in data:
        return node._replace(doing=data["doing"])
    if event.kind is Kind.READY:
        return node._replace(state=NodeState.READY, place=unpack(Place, data))
    if event.kind is Kind.STARTED:
        return node._replace(state=NodeState.RUNNING)
    if event.kind is Kind.RANK_ENDED and event.rank is not None and data.get("code") == 0:
        finished = (*node.finished, event.rank)
        at = max(node.finished_at, data.get("ended_at") or event.at)
        return node._replace(finished=finished, finished_at=at)
    if event.kind is Kind.WORKED:
        return node._replace(worked=True)
    if event.kind is Kind.TAKEN:
        return _preempted_node(node, event)
    if event.kind is Kind.HELD and node.reason is None:
        return _failed(node, event)._replace(held=float(data["until"]))
    if event.kind is Kind.ENDED and node.reason not in (None, Reason.DONE):
        return node._replace(state=NodeState.DRAINING)  # the first failure counts
    if event.kind is Kind.ENDED:
        return _failed(node, event)._replace(state=NodeState.DRAINING)
    if event.kind is Kind.DRAINED:
        return node._replace(state=NodeState.EXITED)
    return node


def _failed(node: Node, event: Event) -> Node:
    """The node, with how its ranks have ended."""
    data = event.data
    return node._replace(
        reason=Reason(data["reason"]),
        at=data.get("failed_at") or event.at,
        rank=event.rank,
        code=data.get("code"),
        message=data.get("message", ""),
        hint=data.get("hint", ""),
        passing=bool(data.get("passing")),
    )


def _preempted_node(node: Node, event: Event) -> Node:
    """The node is to end. Its ranks have the grace period, and peers that fail meanwhile fail
    because of it. A failed attempt that it holds ends, too."""
    if node.held:
        return node._replace(held=0.0)
    if node.reason is not None or node.left or node.state is NodeState.LOST:
        return node
    reason = Reason(event.data.get("reason", Reason.PREEMPTED))
    at = event.data.get("failed_at") or event.at
    message = event.data.get("message", "")
    return node._replace(reason=reason, at=at, message=message)


def _preempted(job: Job, event: Event) -> Job:
    """A preemption was requested, of one node or of all."""
    if job.status not in (JobStatus.PREPARING, JobStatus.RUNNING) or event.attempt != job.attempt:
        return job
    for index, node in enumerate(job.nodes):
        if event.node in (None, index) and node.state is not NodeState.ABSENT:
            job = _with(job, index, _preempted_node(node, event))
    return job


def _kill_requested(job: Job, event: Event) -> Job:
    """The kill of a rank of this attempt was requested."""
    if job.status is not JobStatus.RUNNING or event.attempt != job.attempt:
        return job
    return job._replace(doomed=event.rank)


def _released(job: Job, event: Event) -> Job:
    """A held attempt was released."""
    if job.status is not JobStatus.RUNNING or event.attempt != job.attempt:
        return job
    return job._replace(released="retry" if event.data.get("retry") else "end")


def _with(job: Job, index: int, node: Node) -> Job:
    return job._replace(nodes=(*job.nodes[:index], node, *job.nodes[index + 1 :]))


def _submitted(job: Job, event: Event) -> Job:
    if job.status is not JobStatus.NOT_STARTED:
        return job
    ref = str(event.data.get("ref", ""))
    return job._replace(status=JobStatus.QUEUED, submitted_at=event.at, ref=ref)


def _refused(job: Job, event: Event) -> Job:
    """The engine refused the gang. Nothing was started, so the gang counts as gone."""
    return job._replace(
        gang=GangState.GONE,
        message=event.data["message"],
        submitted_at=event.at,
        stopped_at=event.at,
    )


def _engine_reported(job: Job, event: Event) -> Job:
    state = GangState(event.data["state"])
    if job.gang is GangState.GONE:
        return job
    if state is GangState.UNKNOWN:
        return job._replace(why=event.data.get("why", ""))
    # After our own stop, the engine's reason is a consequence of it.
    reason = event.data.get("reason") if job.stopped_at is None else None
    gone = Reason(reason) if reason else None
    ref = event.data.get("ref") or job.ref
    job = job._replace(gang=state, why=event.data.get("why", ""), gone=gone, ref=ref)
    if state is GangState.UP:
        job = job._replace(up_at=job.up_at or event.at)
    if job.status is JobStatus.QUEUED and state in (GangState.PROVISIONING, GangState.UP):
        job = job._replace(status=JobStatus.PROVISIONING)
    if job.status is JobStatus.PROVISIONING and state is GangState.QUEUED:
        # Queued again: its agents get the full time to connect.
        job = job._replace(status=JobStatus.QUEUED, up_at=None)
    return job


def _gate_opened(job: Job, event: Event) -> Job:
    started = job.started_at or event.at
    return job._replace(status=JobStatus.RUNNING, started_at=started, went_at=event.at)


def _closing(job: Job, event: Event) -> Job:
    then = Then(Purpose(event.data["purpose"]), Reason(event.data["reason"]))
    data = event.data.get("hung")
    hung = job.hung if data is None else unpack(Failure, data)._replace(at=event.at)
    # A changed purpose restarts the clock, because agents that waited now have to leave.
    return job._replace(status=JobStatus.FINALIZING, then=then, closing_at=event.at, hung=hung)


def _stopping(job: Job, event: Event) -> Job:
    return job._replace(stopped_at=event.at)


def _next_attempt(job: Job, at: float) -> dict[str, Any]:
    """The fields that a new attempt resets, with one more restart spent; a gang that is submitted
    again makes none."""
    assert job.then is not None
    counted: dict[str, Any] = {}
    if job.then.purpose is not Purpose.RESUBMIT:
        key = VERDICTS[job.then.reason].retry
        assert key is not None
        counted = {"attempt": job.attempt + 1, "spent": spent(job, at).after(key)}
        counted["previous"] = job.then.reason
    return {
        **counted,
        "went_at": None,
        "then": None,
        "closing_at": None,
        "message": "",
        "hung": None,
        "doomed": None,
        "released": "",
    }


def _regrouped(job: Job, event: Event) -> Job:
    """The next attempt with the same agents: their `seq` continues, everything else is reset."""
    if job.then is None:
        return job
    nodes = tuple(Node(state=NodeState.SETUP, seq=n.seq) for n in job.nodes)
    return job._replace(**_next_attempt(job, event.at), status=JobStatus.PREPARING, nodes=nodes)


def _relaunched(job: Job, event: Event) -> Job:
    if job.then is None:
        return job
    stalled = event.data.get("stalled")
    if stalled is not None:
        job = job._replace(stalled=Row(Progress(stalled["progress"]), stalled["attempts"]))
    return job._replace(
        **_next_attempt(job, event.at),
        status=JobStatus.NOT_STARTED,
        launch=job.launch + 1,
        nodes=(Node(),) * len(job.nodes),
        gang=GangState.ABSENT,
        why="",
        ref="",
        gone=None,
        submitted_at=None,
        up_at=None,
        stopped_at=None,
        not_before=event.at + back_off(job),
    )


def _finished(job: Job, event: Event) -> Job:
    """A run that was imported may have a later attempt."""
    attempt = max(job.attempt, event.attempt)
    return job._replace(status=JobStatus(event.data["status"]), attempt=attempt)


def _lost(job: Job, event: Event) -> Job:
    assert event.node is not None
    node = job.nodes[event.node]
    if node.left or node.state is NodeState.LOST:
        return job
    node = node._replace(state=NodeState.LOST)
    if node.reason is None:
        # Lost since its last call: failures of its peers come after that.
        last_call = event.data.get("heard", event.at)
        node = node._replace(at=last_call, message=event.data.get("why", ""))
    return _with(job, event.node, node)


_FROM_SERVER: dict[Kind, Callable[[Job, Event], Job]] = {
    Kind.CREATED: lambda job, event: job,
    Kind.SUBMITTED: _submitted,
    Kind.REFUSED: _refused,
    Kind.SEEN: _engine_reported,
    Kind.GO: _gate_opened,
    Kind.CLOSING: _closing,
    Kind.STOPPING: _stopping,
    Kind.REGROUPED: _regrouped,
    Kind.RELAUNCHED: _relaunched,
    Kind.FINISHED: _finished,
    Kind.LOST: _lost,
    Kind.PREEMPT_ASKED: _preempted,
    Kind.KILL_ASKED: _kill_requested,
    Kind.RELEASED: _released,
    Kind.ENTERED: lambda job, event: job,
    Kind.NOTICE: lambda job, event: job,
}
