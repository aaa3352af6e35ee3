"""Rows of the jobs table as values, including damaged ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.engine import Connection

from allranks import clock
from allranks.core.data.upload_manifest import all_digests_in
from allranks.core.lifecycle import decide
from allranks.core.lifecycle.decide import Job, Node
from allranks.core.packing import pack, unpack
from allranks.core.plan import Plan
from allranks.events import Event, Kind
from allranks.statuses import TERMINAL
from allranks.store.tables import jobs as _jobs

if TYPE_CHECKING:
    from allranks.api.jobs import JobError
    from allranks.store.jobs.job_notes import JobNotes

# Keys of a plan's task that refer to code, environments and data.
TASK_KEYS = ("code", "in_place", "recipe", "inputs")
# Exceptions of reading a row that somebody else has changed.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


# The type of a job that runs a command itself. Jobs of other types run children.
COMMAND = "command"


NO_NOTES: JobNotes = {}

# Notes of a job with children that it gets when it ends.
OF_THE_END = frozenset({"best", "outputs", "closed"})


class Child(NamedTuple):
    """What makes a job the child of a sweep or a pipeline: its ``number`` among the children of
    ``parent`` (a name), negative for a launch that keeps nodes for the others, and the parent's
    notes on it."""

    parent: str
    number: int
    notes: JobNotes


class JobRow(NamedTuple):
    """A job as stored. ``record`` is the fold of its events; ``version`` counts its changes.
    ``number``: see ``Child``; None for a child that was replaced. ``notes``: of a child its
    parent's, of a parent its own."""

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
    error: JobError | None
    type: str = COMMAND
    parent: str | None = None
    number: int | None = None
    notes: JobNotes = NO_NOTES

    @property
    def key(self) -> str:
        """The key of its current launch, by which its engine knows it."""
        return f"{self.name}.{self.record.launch}"

    def event(
        self, kind: Kind, *, node: int | None = None, rank: int | None = None, data: Any = None
    ) -> Event:
        """An event of its current attempt, now."""
        launch, attempt = self.record.launch, self.record.attempt
        return Event(kind, clock.now(), launch, attempt, node, rank, data=data or {})


class Damaged(NamedTuple):
    """A row that cannot be read as a job, with the reason."""

    id: int
    name: str
    status: str
    live: bool
    created_at: float
    reason: str


class Uses(NamedTuple):
    """What a job refers to, for garbage collection: the ``inputs`` of its spec; code, folder,
    recipe and input sources of its plan; its ``notes``; of a pipeline its ``jobs`` or its
    ``component``."""

    name: str
    live: bool
    created_at: float
    ended_at: float | None
    inputs: dict[str, Any] | None
    code: str | None
    in_place: str | None
    recipe: dict[str, Any] | None
    sources: list[dict[str, Any]]
    notes: JobNotes | None
    jobs: dict[str, Any] | None
    component: dict[str, Any] | None
    properties: dict[str, Any] | None

    def codes(self) -> set[str]:
        """The digests of all its code."""
        own = {self.code} if self.code is not None else set()
        return own | {*snapshots([self.jobs, self.component])}

    def uploads(self) -> set[str]:
        """The digests of the uploaded data that it reads."""
        return {*all_digests_in([self.inputs, self.sources, self.jobs, self.component])}


def snapshots(data: Any) -> Iterator[str]:
    """The digests of the code of a pipeline's steps, or of a component, in their data."""
    if isinstance(data, Mapping):
        if isinstance(data.get("snapshot"), str):
            yield data["snapshot"]
        data = data.values()
    elif not isinstance(data, list):
        return
    for value in data:
        yield from snapshots(value)


def read_one(connection: Connection, job_id: int) -> JobRow | Damaged:
    """Read a job by id; never raises because of the row's content."""
    try:
        return job_row(connection.execute(select(_jobs).where(_jobs.c.id == job_id)).one())
    except UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"[:200]
    columns = (_jobs.c.name, _jobs.c.status, _jobs.c.live, _jobs.c.created_at)
    name, status, live, at = connection.execute(select(*columns).where(_jobs.c.id == job_id)).one()
    return Damaged(job_id, name, status, bool(live), at, reason)


def uses_of(row: JobRow) -> Uses:
    task = pack(row.plan)["task"]
    return Uses(
        name=row.name,
        live=row.record.status not in TERMINAL,
        created_at=row.created_at,
        ended_at=row.ended_at,
        inputs=row.spec.get("inputs"),
        code=task["code"],
        in_place=task["in_place"],
        recipe=task["recipe"],
        sources=task["inputs"],
        notes=row.notes,
        jobs=row.spec.get("jobs"),
        component=row.spec.get("component"),
        properties=row.spec.get("properties"),
    )


def pack_job(job: Job) -> dict[str, Any]:
    """The record as JSON data. Each change of a gang changes one node of many, so the others' data
    are kept."""
    nodes = [_packed_node(node) for node in job.nodes]
    return {**pack(job._replace(nodes=())), "nodes": nodes}


@lru_cache(maxsize=4096)
def _packed_node(node: Node) -> Any:
    return pack(node)


def job_row(row: Row[Any]) -> JobRow:
    """Convert a row. Raises one of UNREADABLE if it is damaged."""
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
        plan=unpack(Plan, row.plan),
        record=unpack(decide.Job, row.record),
        error=row.error,
        type=row.type,
        parent=row.parent,
        number=row.number,
        notes=row.notes or NO_NOTES,
    )
