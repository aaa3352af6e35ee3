"""The job as a state machine: ``fold`` applies events, ``decide`` returns the next step, and
`agent_orders` derives what each agent has to do.

All pure: no clock, no I/O. ``decide`` is called again after each step. A server that dies between
two steps repeats one of them, and every step is idempotent. docs/design/state-machine.md has the
drawing; tests/core/model.py enumerates every interleaving.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from allranks.core.attempt_end import Failure
from allranks.core.lifecycle import repeated_time_limits, retry
from allranks.core.lifecycle.repeated_time_limits import Progress, Row
from allranks.core.lifecycle.retry import Restart, Spent
from allranks.core.plan import Place, Rules
from allranks.events import Kind
from allranks.statuses import TERMINAL, VERDICTS, GangState, JobStatus, NodeState, Purpose, Reason

# Seconds that an engine has to act on `stop`, and agents on an order beyond the grace period.
STOP_AGAIN = 5.0
SLACK = 20.0


class Node(NamedTuple):
    """A node in the current attempt.

    ``reason`` is set once its ranks have ended, or have to end because the node is preempted;
    ``passing``: the failure is temporary, or specific to this node. ``worked`` is set once its
    workers are done, while parameter servers may still run; ``left`` once its agent has said bye.
    ``finished`` are its ranks that ended with exit code 0, ``finished_at`` is when the last one
    did. ``doing`` is what it prepares if that takes long; ``phase`` the part of the preparation,
    since ``phase_at``. ``held``: until when the agent keeps a failed attempt as it is.
    """

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
    held: float = 0.0


class Then(NamedTuple):
    """What follows Finalizing, and why it began."""

    purpose: Purpose
    reason: Reason


class Job(NamedTuple):
    """The fold of a job's events: all that ``decide`` knows. Times are seconds since the epoch.

    ``ref`` is the engine's id of the gang, ``gone`` why the engine ended it, if it said so.
    ``given_up``: canceled with --force, without waiting for a cluster that does not answer.
    ``went_at`` is when this attempt's ranks were started, ``previous`` why the previous attempt
    ended, ``hung`` how this one hangs, ``doomed`` the rank of it that has to be killed,
    ``released`` what follows a held one: `end` or `retry`.
    ``stalled``: how the last time-limited attempts in a row got on.
    ``leftovers``: the processes that could not be ended.
    """

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
    released: str = ""
    leftovers: str = ""
    stalled: Row = Row()


class Effect(Enum):
    """What a step does to the engine, outside any transaction."""

    SUBMIT = "submit"
    STOP = "stop"


class Step(NamedTuple):
    """One thing to do: the ``effect`` on the engine, if any, then record ``event`` and ``data``."""

    event: Kind
    effect: Effect | None = None
    data: Mapping[str, Any] = {}
    node: int | None = None


class Clock(NamedTuple):
    """The time, the nodes whose heartbeats stopped (``silent``), and the limits.

    ``since`` is when this server started: agents are not blamed for its downtime. ``missed``: it
    was away when the gang came, and has not seen it alive. ``hung``: how the ranks hang, if they
    do. ``progress``: that of a time-limited attempt, if it is to decide on the next one.
    """

    now: float
    silent: frozenset[int] = frozenset()
    hello: float = 120.0
    grace: float = 10.0
    since: float = 0.0
    missed: bool = False
    hung: Failure | None = None
    progress: Progress | None = None


def new(nodes: int) -> Job:
    return Job(nodes=(Node(),) * nodes)


# ---------------------------------------------------------------- decide


def decide(job: Job, rules: Rules, clock: Clock) -> Step | None:
    """The next step; None until something happens."""
    if job.status in TERMINAL:
        return None
    lost = _newly_lost(job, clock)
    if lost is not None:
        return lost
    if job.status is JobStatus.FINALIZING:
        return _finalize(job, rules, clock)
    if job.status is not JobStatus.NOT_STARTED and all(n.worked or _done(n) for n in job.nodes):
        return _close(Purpose.FINISH, Reason.DONE)
    if job.canceled:
        return _close(Purpose.FINISH, Reason.CANCELED)
    cause = failure(job)
    if cause is not None:
        return None if _holds(job, rules, clock) else _after(job, rules, cause, clock)
    started = clock.now if job.started_at is None else job.started_at
    if rules.timeout is not None and clock.now >= started + rules.timeout:
        return _close(Purpose.FINISH, Reason.TIME_LIMIT)
    if clock.hung is not None and job.status is JobStatus.RUNNING:
        step = _after(job, rules, clock.hung, clock)
        return step._replace(data={**step.data, "hung": clock.hung._asdict()})
    if job.status is JobStatus.NOT_STARTED:
        return Step(Kind.SUBMITTED, Effect.SUBMIT) if clock.now >= job.not_before else None
    # Ready or later: a record restored from a backup may lack that the gate was opened.
    if job.status is JobStatus.PREPARING and not any(n.state in _NOT_READY for n in job.nodes):
        return Step(Kind.GO)
    return None


def waits(job: Job) -> bool:
    """Whether the job waits in its cluster's queue, so that no time makes a step due, only news."""
    return job.status is JobStatus.QUEUED and job.up_at is None and job.started_at is None


def ranks_ended(job: Job) -> bool:
    """Whether all ranks of this launch have ended: no attempt on its nodes follows."""
    stays = job.then is None or job.then.purpose is Purpose.REGROUP
    return not stays and all(is_gone(n) or n.state in _ENDED for n in job.nodes)


def unrecorded(job: Job) -> float:
    """Seconds from the end of all ranks of a job that is done to the record of it, where the server
    or its database was away meanwhile; else 0. What fails waits for orders, so its end is then."""
    if job.closing_at is None or job.then is None or job.then.reason is not Reason.DONE:
        return 0.0
    gap = job.closing_at - max(n.at for n in job.nodes)
    return gap if gap > SLACK else 0.0


_ENDED = (NodeState.DRAINING, NodeState.EXITED)
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


def _after(job: Job, rules: Rules, cause: Failure, clock: Clock) -> Step:
    """The step after a failure: restart on the same nodes, on new ones, or finish."""
    if _failed_without_server(job, clock):
        return _close(Purpose.RESUBMIT, cause.reason)
    if job.released:
        return _close(Purpose.REGROUP if job.released == "retry" else Purpose.FINISH, cause.reason)
    restart = _restart(job, rules, cause, clock.now)
    if restart is None:
        return _close(Purpose.FINISH, cause.reason)
    return _close(Purpose.REGROUP if restart.same_nodes else Purpose.RELAUNCH, cause.reason)


def held_until(job: Job) -> float | None:
    """Until when agents keep a failed attempt as it is; None if they do not, or not any more."""
    failed = [node for node in job.nodes if _cause(node) is not None]
    running = job.status is JobStatus.RUNNING and job.gang is not GangState.GONE
    kept = all(node.held and node.state is NodeState.RUNNING for node in failed)
    return min(node.held for node in failed) if running and failed and kept else None


def _holds(job: Job, rules: Rules, clock: Clock) -> bool:
    """Whether a failed attempt is to stay as it is. Agents end it in time; the server would."""
    until = held_until(job)
    if until is None or job.released:
        return False
    if rules.timeout is not None and job.started_at is not None:
        until = min(until, job.started_at + rules.timeout)
    return clock.now < until + SLACK


def _failed_without_server(job: Job, clock: Clock) -> bool:
    """Whether the gang got its nodes and failed while the server was away, for example on a laptop
    that slept: then no agent had a server to connect to, and nothing of the job has run."""
    absent = all(node.state is NodeState.ABSENT for node in job.nodes)
    return clock.missed and absent and job.gone is Reason.SETUP_FAILED


def _restart(job: Job, rules: Rules, cause: Failure, now: float) -> Restart | None:
    """How the job starts again after a failure; None if it does not."""
    key = VERDICTS[cause.reason].retry
    comes_again = cause.reason in _MAY_PASS and not cause.passing
    if key is None or comes_again:
        return None
    return retry.restart(rules, spent(job, now), key)


# Reasons that would come again, unless the agent knows that they pass.
_MAY_PASS = (Reason.SETUP_FAILED, Reason.PORT_CONFLICT)


def spent(job: Job, now: float) -> Spent:
    """The restarts spent so far, as they count for the next one."""
    ended = now if job.closing_at is None else job.closing_at
    rested = job.went_at is not None and ended - job.went_at >= retry.HEALTHY
    return job.spent.rested() if rested else job.spent


def back_off(job: Job) -> float:
    """Seconds before the next attempt."""
    if job.then is None or job.closing_at is None or job.then.purpose is Purpose.RESUBMIT:
        return 0.0
    budget = VERDICTS[job.then.reason].retry
    return 0.0 if budget is None else retry.wait(spent(job, job.closing_at), budget)


def _finalize(job: Job, rules: Rules, clock: Clock) -> Step | None:
    then = job.then
    assert then is not None
    assert job.closing_at is not None
    overdue = clock.now >= max(job.closing_at, clock.since) + clock.grace + SLACK
    if job.canceled and then.purpose is not Purpose.FINISH:
        return _close(Purpose.FINISH, Reason.CANCELED)
    if then.purpose is Purpose.REGROUP:
        return _regroup(job, rules, clock.now, overdue)
    everyone_left = all(n.left for n in job.nodes)
    if everyone_left and then.reason in _ENGINE_KNOWS and _awaits_engine(job, overdue):
        return None
    if everyone_left or (job.gang is GangState.GONE and job.stopped_at is not None):
        # What looked like a preemption to an agent may have been final. Only the engine knows.
        cause = failure(job)
        relaunches = then.purpose is Purpose.RELAUNCH
        if relaunches and cause and _restart(job, rules, cause, clock.now) is None:
            return _close(Purpose.FINISH, cause.reason)
        return (
            Step(Kind.FINISHED) if then.purpose is Purpose.FINISH else _relaunch(job, rules, clock)
        )
    # A canceled job does not wait for a node that drains for ever, for example on a full disk.
    patient = job.gang is not GangState.GONE and not (job.canceled and overdue)
    if patient and any(_worth_waiting(n, overdue) for n in job.nodes):
        return None
    if job.stopped_at is not None and clock.now < job.stopped_at + STOP_AGAIN:
        return None
    return Step(Kind.STOPPING, Effect.STOP)


def ran_out_of_time(job: Job) -> bool:
    """Whether a job starts again because the engine's time limit ended its attempt."""
    relaunches = job.then is not None and job.then.purpose is Purpose.RELAUNCH
    cause = failure(job) or job.then
    return relaunches and cause is not None and cause.reason is Reason.TIME_LIMIT


def _relaunch(job: Job, rules: Rules, clock: Clock) -> Step:
    if clock.progress is None or not ran_out_of_time(job):
        return Step(Kind.RELAUNCHED)
    row = job.stalled.after(clock.progress)
    if repeated_time_limits.ends(row, rules.no_progress):
        return _close(Purpose.FINISH, Reason.NO_PROGRESS)
    data = {"stalled": row._asdict()}
    warning = row.text(job.attempt)
    return Step(Kind.RELAUNCHED, data={**data, "message": warning} if warning else data)


def _awaits_engine(job: Job, overdue: bool) -> bool:
    """Whether the engine has yet to report why it ended the gang."""
    return job.gang is not GangState.GONE and job.stopped_at is None and not overdue


def _regroup(job: Job, rules: Rules, now: float, overdue: bool) -> Step | None:
    """The next attempt in the same launch, once all ranks are gone and the back-off is over; in a
    new launch if that is impossible."""
    assert job.then is not None
    assert job.closing_at is not None
    if job.gang is GangState.GONE or any(is_out(n) for n in job.nodes):
        # If a lost node failed first, the restart does not count against the user's attempts.
        cause = failure(job) or Failure(job.then.reason)
        restart = _restart(job, rules, cause, now)
        return _close(Purpose.FINISH if restart is None else Purpose.RELAUNCH, cause.reason)
    if all(n.state is NodeState.EXITED for n in job.nodes):
        due = job.closing_at + back_off(job)
        if rules.timeout is not None and job.started_at is not None:
            due = min(due, job.started_at + rules.timeout)  # the timeout then ends it
        return Step(Kind.REGROUPED) if now >= due else None
    if all(n.state is NodeState.EXITED or _worth_waiting(n, overdue) for n in job.nodes):
        return None
    return _close(Purpose.RELAUNCH, job.then.reason)


def is_gone(node: Node) -> bool:
    """Whether its agent has said bye, or the node is lost."""
    return node.left or node.state is NodeState.LOST


def is_out(node: Node) -> bool:
    """Whether no agent is there: not any more, or not yet."""
    return is_gone(node) or node.state is NodeState.ABSENT


def _worth_waiting(node: Node, overdue: bool) -> bool:
    """Whether the agent may still stop its ranks, upload its files, and leave.

    A draining agent is waited for while its heartbeats arrive: it may have gigabytes to upload.
    """
    if is_out(node):
        return False
    return node.state is NodeState.DRAINING or not overdue


def _close(purpose: Purpose, reason: Reason) -> Step:
    return Step(Kind.CLOSING, data={"purpose": purpose, "reason": reason})


def _done(node: Node) -> bool:
    return node.reason is Reason.DONE


def failure(job: Job) -> Failure | None:
    """The first failure of this attempt, or None.

    A failure of a node takes precedence over what the engine reports, because the gang is also GONE
    after a crash. PEER_FAILED counts only if there is no other failure.
    """
    failures = [
        (node.at, index, _cause(node))
        for index, node in enumerate(job.nodes)
        if _cause(node) not in (None, Reason.PEER_FAILED)
    ]
    if job.hung is not None and all(job.hung.at <= at for at, *_ in failures):
        return job.hung
    if failures:
        _, index, reason = min(failures)
        node = job.nodes[index]
        assert reason is not None
        if job.gone in _ENGINE_KNOWS.get(reason, ()):
            assert job.gone is not None
            # The engine told the other nodes to end, so the lost one is the one without a reason.
            silent = [i for i, other in enumerate(job.nodes) if other.reason is None]
            lost = silent[0] if silent and job.gone is Reason.NODE_LOST else None
            return Failure(job.gone, lost, message=job.why, at=node.at)
        return Failure(
            reason, index, node.rank, node.code, node.message, node.hint, node.at, node.passing
        )
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
    """Why a node failed. A node that is gone without a reason is lost."""
    if node.reason is None:
        return Reason.NODE_LOST if is_gone(node) else None
    return None if node.reason is Reason.DONE else node.reason


# Reasons that the engine knows better: an agent that is ended by a signal cannot tell why. (For a
# lost node, CANCELED is left out: it may be our own cancel, done but not recorded yet.)
_ENGINE_KNOWS: Mapping[Reason, tuple[Reason, ...]] = {
    Reason.PREEMPTED: (Reason.CANCELED, Reason.TIME_LIMIT, Reason.NODE_LOST),
    Reason.NODE_LOST: (Reason.PREEMPTED, Reason.TIME_LIMIT, Reason.OUT_OF_MEMORY),
}


_OWN_DECISIONS = (Reason.DONE, Reason.CANCELED, Reason.TIME_LIMIT, Reason.NO_PROGRESS)


def outcome(job: Job) -> Failure:
    """How a finishing job ended: its first failure, or the reason to finish."""
    assert job.then is not None
    first = failure(job)
    if job.then.reason in _OWN_DECISIONS:
        # Our own decision, unless the engine reported the same one.
        same = first is not None and first.reason is job.then.reason and not job.canceled
        # Ranks are done before what they wrote is saved.
        lost = first is not None and first.reason is Reason.OUTPUTS_LOST
        unsaved = lost and job.then.reason is Reason.DONE
        return first if first and (same or unsaved) else Failure(job.then.reason)
    return first or Failure(job.then.reason)
