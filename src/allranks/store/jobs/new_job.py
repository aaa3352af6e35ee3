"""Insert a new job with its first event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from allranks.core.lifecycle import decide
from allranks.core.lifecycle.fold import fold
from allranks.core.packing import pack
from allranks.core.plan import Plan
from allranks.errors import Conflict
from allranks.events import Event, Kind
from allranks.statuses import JobStatus
from allranks.store.jobs.annotations import add as annotate
from allranks.store.jobs.event_rows import insert_events
from allranks.store.jobs.job_rows import COMMAND, NO_NOTES, Child, JobRow
from allranks.store.tables import deleted_jobs as _deleted
from allranks.store.tables import jobs as _jobs

if TYPE_CHECKING:
    from allranks.api.jobs import JobError
    from allranks.store.jobs.job_notes import JobNotes

DELETED = "was deleted; names are not reused"
_IS_DELETED = select(_deleted.c.name).where(_deleted.c.name == bindparam("name"))
_INSERT = _jobs.insert().returning(_jobs.c.id)


class Outcome(NamedTuple):
    """How a job ended that ran elsewhere, and when; in seconds since the epoch."""

    status: JobStatus
    began: float
    ended: float
    exit_code: int | None = None
    error: JobError | None = None


class NewJob(NamedTuple):
    """A job to create: see ``Records.create``. ``outcome``: it ran elsewhere. ``notes``: its own,
    beside those on a child."""

    spec: dict[str, Any]
    plan: Plan
    about: Mapping[str, Any] = {}
    type: str = COMMAND
    child: Child | None = None
    ended: bool = False
    outcome: Outcome | None = None
    notes: JobNotes = NO_NOTES


def insert_job(connection: Connection, new: NewJob, now: float) -> JobRow:
    """Insert the job. Raises Conflict if its name, or its number among its parent's children, is
    taken."""
    name, record = new.plan.task.job, decide.new(new.plan.gang.nodes)
    outcome = new.outcome
    if new.ended:
        outcome = Outcome(JobStatus.COMPLETED, now, now, 0)
    if outcome is not None:
        now = outcome.began
    events = [Event(Kind.CREATED, now, data={"digest": new.plan.digest, **new.about})]
    values: dict[str, Any] = {"notes": new.notes} if new.notes else {}
    if new.child is not None:
        notes = {**new.notes, **new.child.notes}
        values |= {"parent": new.child.parent, "number": new.child.number, "notes": notes}
    if outcome is not None:
        end = {"exit_code": outcome.exit_code, "error": outcome.error}
        result = {"status": str(outcome.status), **end}
        events.append(Event(Kind.FINISHED, outcome.ended, data=result))
        record = fold(record, events[-1])
        values |= {**end, "ended_at": outcome.ended}
        if outcome.ended > outcome.began:
            values |= {"started_at": outcome.began}
    values |= {
        "name": name,
        "experiment": new.plan.task.experiment,
        "version": 0,
        "created_at": now,
        "spec": new.spec,
        "type": new.type,
    }
    stored = {
        "status": str(record.status),
        "live": 1 if outcome is None else 0,
        "plan": pack(new.plan),
        "record": pack(record),
    }
    if is_deleted(connection, name):
        raise name_taken(name, DELETED)
    try:
        job_id = connection.execute(_INSERT, {**values, **stored}).scalar_one()
    except IntegrityError:
        raise name_taken(name, "already exists") from None
    insert_events(connection, job_id, events)
    annotate(connection, job_id, name, new.spec)
    nothing = dict.fromkeys(("started_at", "ended_at", "exit_code", "error"))
    return JobRow(id=job_id, plan=new.plan, record=record, **{**nothing, **values})


def is_deleted(connection: Connection, name: str) -> bool:
    """Whether a job of that name was deleted."""
    return connection.execute(_IS_DELETED, {"name": name}).first() is not None


def name_taken(name: str, reason: str) -> Conflict:
    """The error for a name that cannot be used."""
    hint = "use another name, or none to have one generated"
    return Conflict(f"a job named {name!r} {reason}", where="name", hint=hint)
