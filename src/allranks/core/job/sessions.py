"""Jobs that keep nodes for others, and the jobs inside of them. Pure.

A session is a job with the key `session`; a guest is a job with the key `inside`, or one whose
parent keeps nodes, each launch of which is a session. Its plan is that of any job of the compute,
but its engine is the session: see `server/sessions`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from allranks.core.amounts import counted, seconds_text
from allranks.core.environments.activation import OF_ANOTHER
from allranks.core.lifecycle.decide import Job
from allranks.core.lifecycle.retry import Spent, left
from allranks.core.packing import pack
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.spec.job_parts import Session
from allranks.statuses import TERMINAL, JobStatus, Reason, RetryOn

# The name of the engine, and its options: the session's name, or that of the parent whose nodes it
# runs on, and then what it asks its cluster for, see ``needs``.
ENGINE, OPTION, PARENT, NEEDS = "session", "session", "parent", "needs"
# What begins the names of sessions that people start, and the tag by which they are found.
PREFIX, TAG = "dev-", "session"
# Seconds before its end at which a session says so; at most this part of its idle time.
_WARNING, _PART = 300.0, 0.5
# The part of a launch's time from which on its time limit counts as that of the job on it.
_OWN_PART = 0.9
# What keeps the nodes of a launch; its agents do the work.
_WAITS = "exec sleep infinity"


def session_name(text: str) -> str:
    """The name of the session's job: `dev-` and its name."""
    return text if text.startswith(PREFIX) else f"{PREFIX}{text}"


def inside(made: Plan, name: str, session: Plan, *, inherits: bool) -> Plan:
    """The plan of a guest: that of the session's compute, on the session's nodes. With ``inherits``
    its ranks have the session's environment."""
    host, task = session.task, made.task
    if inherits:
        task = task._replace(
            container=host.container,
            recipe=None,
            current=None,
            environment=host.environment,
            environment_asked=host.environment_asked,
        )
    own_folder = task.code is None and task.in_place is None
    task = task._replace(
        inside=name,
        inherits=inherits,
        # What changes in the session's folder is the session's to keep.
        fresh_work=own_folder or task.fresh_work,
        keep_work=0 if own_folder else task.keep_work,
    )
    plan = made._replace(
        gang=made.gang._replace(options={OPTION: name}),
        task=task,
        engine=ENGINE,
        compute=session.compute,
        server_address=session.server_address,
    )
    return _with_digest(plan)


def on_nodes_of_parent(made: Plan, parent: str) -> Plan:
    """The plan of a job that runs on the nodes that its parent keeps. See ``launch``."""
    cluster = {"engine": made.engine, "options": made.gang.options}
    gang = made.gang._replace(options={PARENT: parent, NEEDS: needs(made), **cluster})
    return _with_digest(made._replace(gang=gang, engine=ENGINE))


def needs(plan: Plan) -> str:
    """A digest of all that a job asks its cluster for. Jobs with the same one can run on the nodes
    of one another."""
    options = plan.gang.options
    if NEEDS in options:
        return str(options[NEEDS])
    if PARENT in options:  # submitted to an earlier server: what it would ask for
        gang = plan.gang._replace(options=options["options"])
        plan = plan._replace(gang=gang, engine=options["engine"])
    gang = plan.gang._replace(key="", argv=(), env={}, ranks=0, fixed_ports=())
    text = json.dumps([plan.engine, plan.compute, pack(gang)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def launch(name: str, like: Plan, argv: tuple[str, ...], record: str) -> Plan:
    """The plan of a job that keeps nodes for the children of a parent: those that ``like`` asks
    for, which runs on them. It has nothing else of that one's, and does not start again: see
    ``core/parents/kept_nodes``."""
    nodes, options = like.gang.nodes, like.gang.options
    task = Task(
        name,
        like.task.experiment,
        _WAITS,
        nodes=nodes,
        gpus=like.task.gpus,
        # Its jobs bring their own Python, which may not be where the submitter has it.
        base={name: text for name, text in like.task.base.items() if name not in OF_ANOTHER},
        record=record,
        environments=like.task.environments,
        cache=like.task.cache,
        cache_limit=like.task.cache_limit,
        sends_files=like.task.sends_files,
        may_send=like.task.may_send,
        parent=options[PARENT],
    )
    gang = like.gang._replace(key=f"{name}.1", argv=argv, options=options["options"])
    rules = Rules(nodes, on=(), grace=like.rules.grace)
    made = like._replace(gang=gang, task=task, rules=rules, engine=options["engine"], notes=())
    return _with_digest(made)


def _with_digest(plan: Plan) -> Plan:
    text = json.dumps(pack(plan._replace(digest="")), sort_keys=True)
    return plan._replace(digest=hashlib.sha256(text.encode()).hexdigest())


def never_fits(gang: Gang, name: str, session: Plan) -> str:
    """Why the gang can never run in that session; empty if it can."""
    has = session.gang
    if gang.nodes > has.nodes:
        return f"the job asks for {counted(gang.nodes, 'node')}, and {name} has {has.nodes}"
    if gang.gpus > has.gpus:
        asks = counted(gang.gpus, "GPU")
        return f"the job asks for {asks} per node, and {name} has {has.gpus or 'none'}"
    return ""


class End(NamedTuple):
    """Why the guests of a session cannot go on, in words, and as a reason."""

    why: str
    reason: Reason


def end_of(name: str, job: Job | None) -> End | None:
    """None while the session can have guests."""
    if job is None:
        return End(f"{name} does not exist any more", Reason.CANCELED)
    if job.status not in TERMINAL and job.status is not JobStatus.FINALIZING:
        return None
    word = "has ended" if job.status in TERMINAL else "ends"
    done = job.then is not None and job.then.reason in (Reason.DONE, Reason.CANCELED)
    return End(f"{name} {word}", Reason.CANCELED if done else Reason.NODE_LOST)


def end_of_launch(name: str, job: Job | None, began: float | None, now: float) -> End | None:
    """Why a job that has had a launch of its parent since ``began`` cannot go on there; None while
    it can. That the launch was ended says nothing of the job: it starts again on another one."""
    end = end_of(name, job)
    if end is None:
        return None
    reason = None if job is None or job.then is None else job.then.reason
    if job is not None and reason is Reason.TIME_LIMIT:
        whole = 0.0 if job.went_at is None else now - job.went_at
        own = 0.0 if began is None else now - began
        reason = Reason.TIME_LIMIT if own >= _OWN_PART * whole else Reason.PREEMPTED
    elif reason is not Reason.PREEMPTED:
        reason = Reason.NODE_LOST
    return end._replace(reason=reason)


def has_time_left(job: Job, rules: Rules, spent: Spent, longest: float, now: float) -> bool:
    """Whether a launch that jobs have run on, for ``longest`` seconds at most, has the time for
    another one, as far as its nodes know. A job that does not start again after a preemption, given
    the restarts that it has ``spent``, gets there what a launch of its own would give it."""
    ends = [node.place.end for node in job.nodes if node.place and node.place.end is not None]
    if not ends:
        return True
    rest = min(ends) - now
    if left(rules, spent, RetryOn.PREEMPTED):
        return rest >= longest
    began = now if job.went_at is None else job.went_at
    return rest >= min(_OWN_PART * (min(ends) - began), rules.timeout or math.inf)


class Guest(NamedTuple):
    """A gang in a session, as the session's queue sees it. ``session``: the one that it runs in,
    empty until one of its parent's with the same ``needs`` is free. ``started``: its turn has come;
    ``ended``: its ranks have, though its agents may still send files."""

    name: str
    key: str
    nodes: int
    gpus: int
    session: str
    started: bool = False
    ended: bool = False
    needs: str = ""


def next_guest(guests: Sequence[Guest]) -> Guest | None:
    """The one whose turn it is, if none runs: one after the other, in the order of submission."""
    if any(guest.started and not guest.ended for guest in guests):
        return None
    return next((guest for guest in guests if not guest.started), None)


class Notice(NamedTuple):
    """What a session has to be told now, ``about`` its idle time or its time limit."""

    about: str
    text: str
    ends: bool = False


def notice(
    session: Session, began: float, used: float, now: float, warned: Sequence[str]
) -> Notice | None:
    """What is due for a session that runs since ``began`` and was last used at ``used``. ``warned``
    are the warnings that were given since."""
    idle, limit = session.idle_timeout, session.timeout
    if idle is not None:
        rests, left = now - used, used + idle - now
        if left <= 0:
            return Notice(
                "idle", f"nothing has used it for {seconds_text(idle)}: it ends", ends=True
            )
        if left <= min(_WARNING, idle * _PART) and "idle" not in warned:
            what = f"nothing has used it for {seconds_text(rests)}"
            return Notice("idle", f"{what}: it ends in {seconds_text(left)} unless somebody does")
    if limit is not None and "timeout" not in warned:
        left = began + limit - now
        if 0 < left <= min(_WARNING, limit * _PART):
            text = f"its time of {seconds_text(limit)} is over in {seconds_text(left)}"
            return Notice("timeout", text)
    return None
