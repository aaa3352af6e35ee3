"""Rows of the table of jobs as values, also of those that cannot be read as jobs."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.engine import Connection

from allranks.plan.lifecycle import decide
from allranks.plan.lifecycle.decide import Job
from allranks.plan.plan import Gang, Plan, Rules, Task, pack
from allranks.statuses import TERMINAL
from allranks.store.database import jobs as _jobs

# What a plan's task says of what the job uses.
OF_TASK = ("code", "in_place", "recipe", "inputs")
# What a row raises that was not written by this version, or was changed by hand.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class JobRow(NamedTuple):
    """A job as stored. ``record`` is the fold of its events; ``version`` counts its changes."""

    id: int
    name: str
    experiment: str
    version: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    spec: dict[str, Any]
    plan: Plan
    record: Job
    error: dict[str, Any] | None


class Damaged(NamedTuple):
    """A row that cannot be read as a job, and why. Other rows are read all the same."""

    id: int
    name: str
    status: str
    live: bool
    created_at: float
    reason: str


class Uses(NamedTuple):
    """What a job makes use of, as it is stored: of its spec the ``inputs``, of its plan the code,
    the folder it runs in, the recipe, and where its inputs lie."""

    name: str
    live: bool
    created_at: float
    ended_at: float | None
    inputs: dict[str, Any] | None
    code: str | None
    in_place: str | None
    recipe: dict[str, Any] | None
    sources: list[dict[str, Any]]


def read_one(connection: Connection, job_id: int) -> JobRow | Damaged:
    """The job of that number. Whatever its row holds, it raises nothing."""
    try:
        return job_row(connection.execute(select(_jobs).where(_jobs.c.id == job_id)).one())
    except UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"[:200]
    columns = (_jobs.c.name, _jobs.c.status, _jobs.c.live, _jobs.c.created_at)
    name, status, live, at = connection.execute(select(*columns).where(_jobs.c.id == job_id)).one()
    return Damaged(job_id, name, status, bool(live), at, reason)


def uses_of(row: JobRow) -> Uses:
    """What the job makes use of."""
    task = pack(row.plan)["task"]
    facts = (row.name, row.record.status not in TERMINAL, row.created_at, row.ended_at)
    return Uses(*facts, row.spec.get("inputs"), *(task[key] for key in OF_TASK))


def job_row(row: Row[Any]) -> JobRow:
    """The row as a job. Raises one of UNREADABLE for one that is damaged."""
    plan = row.plan
    return JobRow(
        id=row.id,
        name=row.name,
        experiment=row.experiment,
        version=row.version,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        spec=row.spec,
        plan=Plan(
            Gang(**{**plan["gang"], "argv": tuple(plan["gang"]["argv"])}),
            Task.load(plan["task"]),
            Rules(**{**plan["rules"], "on": tuple(plan["rules"]["on"])}),
            plan["engine"],
            plan["digest"],
            plan.get("compute", plan["engine"]),
            plan.get("server_address", ""),
            tuple(plan.get("notes", ())),
        ),
        record=decide.load(row.record),
        error=row.error,
    )
