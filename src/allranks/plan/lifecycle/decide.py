"""The job as a state machine: ``fold`` what happened, ``decide`` what next; `orders` has
what follows for each agent.

All pure: no clock, no I/O. ``decide`` is called again after each step was applied and yields the
next, so that a server that dies anywhere between does the same step again, and twice equals once.
docs/design/state-machine.md has the drawing; tests/plan/model.py enumerates every interleaving.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.events import Kind
from allranks.plan.attempt_end import Failure
from allranks.plan.lifecycle import retry
from allranks.plan.lifecycle.retry import Spent
from allranks.plan.plan import Place, Rules
from allranks.statuses import TERMINAL, VERDICTS, GangState, JobStatus, NodeState, Reason

# How long an engine gets to act on `stop`, and agents on an order past its grace.
STOP_AGAIN = 5.0
SLACK = 20.0


class Node(NamedTuple):
    """A node in the current attempt. ``reason`` is set once its ranks have ended, or are to end
    because the node is taken away; ``passing``: it may go by itself, or be otherwise elsewhere;
    ``worked`` is set once its workers are done while parameter servers may still run; ``left`` once
    its agent said bye;
    ``finished`` are its ranks that ended with exit code 0, ``finished_at`` the last of them;
    ``doing`` what it is preparing, where that may take long; ``phase`` which part of that it is at,
    since ``phase_at``."""

    state: NodeState = NodeState.ABSENT
    attempt: int = 0
    seq: int = 0
    place: Place | None = None
    worked: bool = False
    left: bool = False
    reason: Reason | None = None
    at: float = 0.0
    rank: int | None = None
    code: int | None = None
    message: str = ""
    hint: str = ""
    finished: tuple[int, ...] = ()
    finished_at: float = 0.0
    doing: str = ""
    phase: str = ""
    phase_at: float = 0.0
    passing: bool = False


class Then(NamedTuple):
    """What Finalizing is for: ``finish``, ``relaunch`` or ``regroup``, and the reason it began."""

    purpose: str
    reason: Reason


class Job(NamedTuple):
    """The fold of a job's events: all that ``decide`` looks at. Times: seconds since the epoch.

    ``ref`` is the engine's own id of the gang, ``gone`` why it has ended it, where it said so.
    ``given_up``: canceled by somebody who does not wait for a cluster that does not answer.
    ``went_at`` is when this attempt's ranks were started, ``previous`` why the one before ended,
    ``hung`` how this one was found to hang, ``doomed`` the rank of it that is to be killed."""

    nodes: tuple[Node, ...]
    status: JobStatus = JobStatus.NOT_STARTED
    launch: int = 1
    attempt: int = 1
    then: Then | None = None
    canceled: bool = False
    given_up: bool = False
    gang: GangState = GangState.ABSENT
    why: str = ""
    ref: str = ""
    gone: Reason | None = None
    spent: Spent = Spent()
    previous: Reason | None = None
    submitted_at: float | None = None
    started_at: float | None = None
    went_at: float | None = None
    up_at: float | None = None
    closing_at: float | None = None
    stopped_at: float | None = None
    not_before: float = 0.0
    message: str = ""
    hung: Failure | None = None
    doomed: int | None = None


class Step(NamedTuple):
    """One thing to do: the ``effect`` on the engine (``submit``, ``stop`` or none), then record
    ``event`` with ``data``."""

    event: Kind
    effect: str = ""
    data: Mapping[str, Any] = {}
    node: int | None = None


class Clock(NamedTuple):
    """What ``decide`` may know of time: now, who has not been heard of, and the limits in force.

    ``since`` is when this server began to listen: nobody is blamed for what it was not there for.
    ``hung``: how the ranks hang, if they do.
    """

    now: float
    silent: frozenset[int] = frozenset()
    hello: float = 120.0
    grace: float = 10.0
    since: float = 0.0
    hung: Failure | None = None


def new(nodes: int) -> Job:
    return Job(nodes=(Node(),) * nodes)


def load(data: Mapping[str, Any]) -> Job:
    """The job that ``pack`` made into JSON."""
    fields = {name: data[name] for name in Job._fields if name in data}
    fields["nodes"] = tuple(_load_node(each) for each in data["nodes"])
    fields["status"] = JobStatus(data["status"])
    fields["gang"] = GangState(data["gang"])
    fields["gone"] = Reason(data["gone"]) if data.get("gone") else None
    fields["previous"] = Reason(data["previous"]) if data.get("previous") else None
    fields["spent"] = Spent(**data.get("spent", {}))
    fields["hung"] = Failure.load(data["hung"]) if data.get("hung") else None
    if data["then"] is not None:
        fields["then"] = Then(data["then"]["purpose"], Reason(data["then"]["reason"]))
    return Job(**fields)


def _load_node(data: Mapping[str, Any]) -> Node:
    fields = dict(data)
    fields["state"] = NodeState(data["state"])
    fields["reason"] = Reason(data["reason"]) if data["reason"] else None
    fields["place"] = Place.load(data["place"]) if data["place"] else None
    fields["finished"] = tuple(data.get("finished", ()))
    return Node(**fields)


# ---------------------------------------------------------------- decide


def decide(job: Job, rules: Rules, clock: Clock) -> Step | None:
    """The next step, or None when there is nothing to do until something happens."""
    if job.status in TERMINAL:
        return None
    lost = _newly_lost(job, clock)
    if lost is not None:
        return lost
    if job.status is JobStatus.FINALIZING:
        return _finalize(job, rules, clock)
    if job.status is not JobStatus.NOT_STARTED and all(n.worked or _done(n) for n in job.nodes):
        return _close("finish", Reason.DONE)
    if job.canceled:
        return _close("finish", Reason.CANCELED)
    cause = failure(job)
    if cause is not None:
        return _after(job, rules, cause, clock.now)
    started = clock.now if job.started_at is None else job.started_at
    if rules.timeout is not None and clock.now >= started + rules.timeout:
        return _close("finish", Reason.TIME_LIMIT)
    if clock.hung is not None and job.status is JobStatus.RUNNING:
        step = _after(job, rules, clock.hung, clock.now)
        return step._replace(data={**step.data, "hung": clock.hung._asdict()})
    if job.status is JobStatus.NOT_STARTED:
        return Step(Kind.SUBMITTED, "submit") if clock.now >= job.not_before else None
    # Ready, or further: a record restored from a backup may have forgotten that it opened the gate.
    if job.status is JobStatus.PREPARING and not any(n.state in _NOT_READY for n in job.nodes):
        return Step(Kind.GO)
    return None


_NOT_READY = (NodeState.ABSENT, NodeState.SETUP, NodeState.LOST)


def _newly_lost(job: Job, clock: Clock) -> Step | None:
    for index, node in enumerate(job.nodes):
        if is_gone(node):
            continue
        if node.state is NodeState.ABSENT:
            late = job.up_at is not None and clock.now >= max(job.up_at, clock.since) + clock.hello
            if late and job.status is not JobStatus.FINALIZING:
                return Step(Kind.LOST, node=index, data={"why": "its agent never connected"})
        elif index in clock.silent:
            return Step(Kind.LOST, node=index, data={"why": "its heartbeats stopped"})
    return None


def _after(job: Job, rules: Rules, cause: Failure, now: float) -> Step:
    """What follows a failure: the same nodes again, new ones, or the end."""
    if not _again(job, rules, cause, now):
        return _close("finish", cause.reason)
    again = VERDICTS[cause.reason].retry
    assert again is not None
    stays = retry.stays(spent(job, now), again)
    return _close("regroup" if stays else "relaunch", cause.reason)


def _again(job: Job, rules: Rules, cause: Failure, now: float) -> bool:
    again = VERDICTS[cause.reason].retry
    if cause.reason is Reason.SETUP_FAILED and not cause.passing:
        return False  # what is not there now is not there in a minute
    return again is not None and retry.left(rules, spent(job, now), again) > 0


def spent(job: Job, now: float) -> Spent:
    """What its restarts have cost, as it counts for one after this attempt."""
    ended = now if job.closing_at is None else job.closing_at
    rested = job.went_at is not None and ended - job.went_at >= retry.HEALTHY
    return job.spent.rested() if rested else job.spent


def back_off(job: Job) -> float:
    """Seconds between two attempts of a job that is to have one more."""
    if job.then is None or job.closing_at is None:
        return 0.0
    again = VERDICTS[job.then.reason].retry
    return 0.0 if again is None else retry.wait(spent(job, job.closing_at), again)


def _finalize(job: Job, rules: Rules, clock: Clock) -> Step | None:
    then = job.then
    assert then is not None
    assert job.closing_at is not None
    overdue = clock.now >= max(job.closing_at, clock.since) + clock.grace + SLACK
    if job.canceled and then.purpose != "finish":
        return _close("finish", Reason.CANCELED)
    if then.purpose == "regroup":
        return _regroup(job, rules, clock.now, overdue)
    everyone_left = all(n.left for n in job.nodes)
    if everyone_left and then.reason in _FOR_THE_ENGINE_TO_SAY and _will_be_told(job, overdue):
        return None
    if everyone_left or (job.gang is GangState.GONE and job.stopped_at is not None):
        # What an agent took for a preemption may have been something final: only the engine knows.
        cause = failure(job)
        if then.purpose == "relaunch" and cause and not _again(job, rules, cause, clock.now):
            return _close("finish", cause.reason)
        return Step(Kind.RELAUNCHED if then.purpose == "relaunch" else Kind.FINISHED)
    # One that drains for ever, on a full disk perhaps, does not outlast a user who has canceled.
    patient = job.gang is not GangState.GONE and not (job.canceled and overdue)
    if patient and any(_worth_waiting(n, overdue) for n in job.nodes):
        return None
    if job.stopped_at is not None and clock.now < job.stopped_at + STOP_AGAIN:
        return None
    return Step(Kind.STOPPING, "stop")


def _will_be_told(job: Job, overdue: bool) -> bool:
    """The engine has not said yet why it ended the gang, and nobody else did."""
    return job.gang is not GangState.GONE and job.stopped_at is None and not overdue


def _regroup(job: Job, rules: Rules, now: float, overdue: bool) -> Step | None:
    """The next attempt in the same launch, once all ranks are gone and its back-off is over; in
    another if it cannot be."""
    assert job.then is not None
    assert job.closing_at is not None
    if job.gang is GangState.GONE or any(_is_out(n) for n in job.nodes):
        # A lost node may have been what failed first: that is no attempt of the user's.
        cause = failure(job) or Failure(job.then.reason)
        return _close("relaunch" if _again(job, rules, cause, now) else "finish", cause.reason)
    if all(n.state is NodeState.EXITED for n in job.nodes):
        due = job.closing_at + back_off(job)
        if rules.timeout is not None and job.started_at is not None:
            due = min(due, job.started_at + rules.timeout)  # which then ends it
        return Step(Kind.REGROUPED) if now >= due else None
    if all(n.state is NodeState.EXITED or _worth_waiting(n, overdue) for n in job.nodes):
        return None
    return _close("relaunch", job.then.reason)


def is_gone(node: Node) -> bool:
    """Whether its agent is no longer heard: it said bye, or was given up."""
    return node.left or node.state is NodeState.LOST


def _is_out(node: Node) -> bool:
    return is_gone(node) or node.state is NodeState.ABSENT


def _worth_waiting(node: Node, overdue: bool) -> bool:
    """An agent that still answers is left to stop its ranks, hand in what it has, and leave.

    One that drains is waited for as long as it is heard of: it may have gigabytes to hand in.
    """
    if _is_out(node):
        return False
    return node.state is NodeState.DRAINING or not overdue


def _close(purpose: str, reason: Reason) -> Step:
    return Step(Kind.CLOSING, data={"purpose": purpose, "reason": reason})


def _done(node: Node) -> bool:
    return node.reason is Reason.DONE


def failure(job: Job) -> Failure | None:
    """The first cause of what went wrong in this attempt, or None.

    What happened to a node, told or noticed, beats the engine's word on the gang: it is also GONE
    after a crash. PEER_FAILED is a cause only where nothing else is known.
    """
    found = [
        (node.at, index, _cause(node))
        for index, node in enumerate(job.nodes)
        if _cause(node) not in (None, Reason.PEER_FAILED)
    ]
    if job.hung is not None and all(job.hung.at <= at for at, *_ in found):
        return job.hung
    if found:
        _, index, reason = min(found)
        node = job.nodes[index]
        assert reason is not None
        if job.gone in _FOR_THE_ENGINE_TO_SAY.get(reason, ()):
            assert job.gone is not None
            # Of a lost node the others were told by the engine: it is the one that says nothing.
            mute = [i for i, each in enumerate(job.nodes) if each.reason is None]
            lost = mute[0] if mute and job.gone is Reason.NODE_LOST else None
            return Failure(job.gone, lost, message=job.why, at=node.at)
        told = node.message, node.hint, node.at, node.passing
        return Failure(reason, index, node.rank, node.code, *told)
    if job.gang is GangState.GONE:
        reason = job.gone or (Reason.GANG_REFUSED if job.message else Reason.NODE_LOST)
        if reason is Reason.SETUP_FAILED and any(
            n.state is not NodeState.ABSENT for n in job.nodes
        ):
            reason = Reason.NODE_LOST  # agents were up: no script failed to start them
        return Failure(reason, message=job.message or job.why)
    if any(_cause(node) for node in job.nodes):
        return Failure(Reason.PEER_FAILED)
    return None


def _cause(node: Node) -> Reason | None:
    """What went wrong on a node; one that is gone without a word on how it ended is lost."""
    if node.reason is None:
        return Reason.NODE_LOST if is_gone(node) else None
    return None if node.reason is Reason.DONE else node.reason


# What the engine knows better: an agent that is ended sees no more than that, nor does a server
# that no longer hears it. (Of a lost node a cancel may be our own, done and not recorded.)
_FOR_THE_ENGINE_TO_SAY: Mapping[Reason, tuple[Reason, ...]] = {
    Reason.PREEMPTED: (Reason.CANCELED, Reason.TIME_LIMIT, Reason.NODE_LOST),
    Reason.NODE_LOST: (Reason.PREEMPTED, Reason.TIME_LIMIT, Reason.OUT_OF_MEMORY),
}


def outcome(job: Job) -> Failure:
    """How the job ended, once it is to finish: the first cause, or why it was asked to end."""
    assert job.then is not None
    found = failure(job)
    if job.then.reason in (Reason.DONE, Reason.CANCELED, Reason.TIME_LIMIT):
        # The user's own wish, unless the engine had the same one and said so.
        same = found is not None and found.reason is job.then.reason and not job.canceled
        return found if found and same else Failure(job.then.reason)
    return found or Failure(job.then.reason)
