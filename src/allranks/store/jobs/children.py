"""The children of sweeps and pipelines, without their specs and plans: ten thousand are quick."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine, func, or_, select

from allranks.statuses import JobStatus
from allranks.store.jobs.job_rows import NO_NOTES
from allranks.store.tables import jobs as _jobs

if TYPE_CHECKING:
    from allranks.api.jobs import JobError
    from allranks.store.jobs.job_notes import JobNotes

# Ids in one query: databases have a limit.
_BATCH = 500


class ChildState(NamedTuple):
    """A child as its parent sees it. ``notes`` are the parent's; ``canceled``: its cancellation
    was requested, ``given_up``: with --force; ``error`` is that of an ended job. Times in seconds
    since the epoch."""

    id: int
    name: str
    number: int
    status: JobStatus
    canceled: bool
    given_up: bool
    exit_code: int | None
    error: JobError | None
    started_at: float | None
    ended_at: float | None
    notes: JobNotes


class Children:
    """The children in a database. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(read_only=True)

    def of(self, parent: str, *, above: int = -1, ids: tuple[int, ...] = ()) -> list[ChildState]:
        """The children of a job by number, without replaced ones and launches: those with an id
        above ``above`` and those with one of ``ids``."""
        columns = (
            _jobs.c.id,
            _jobs.c.name,
            _jobs.c.number,
            _jobs.c.status,
            *(_jobs.c.record[key].as_boolean() for key in ("canceled", "given_up")),
            _jobs.c.exit_code,
            _jobs.c.error,
            _jobs.c.started_at,
            _jobs.c.ended_at,
            _jobs.c.notes,
        )
        query = select(*columns).where(_jobs.c.parent == parent, _jobs.c.number >= 0)
        rows: dict[int, ChildState] = {}
        with self._engine.connect() as connection:
            for start in range(0, max(len(ids), 1), _BATCH):
                some = _jobs.c.id.in_(ids[start : start + _BATCH])
                selected = some if start else or_(_jobs.c.id > above, some)
                for row in connection.execute(query.where(selected)):
                    state = ChildState(*tuple(row))
                    notes = row.notes or NO_NOTES
                    rows[row.id] = state._replace(status=JobStatus(row.status), notes=notes)
        return sorted(rows.values(), key=lambda child: child.number)

    def has(self, parent: str, number: int) -> bool:
        """Whether a job has a child of that number."""
        query = select(_jobs.c.id).where(_jobs.c.parent == parent, _jobs.c.number == number)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def launches(self, parent: str) -> int:
        """How many launches a job has had, which keep nodes for its children: they are numbered
        from -1 down."""
        query = select(func.min(_jobs.c.number)).where(_jobs.c.parent == parent)
        with self._engine.connect() as connection:
            return max(0, -(connection.execute(query).scalar() or 0))

    def counts(self, parents: Collection[str]) -> dict[str, dict[str, int]]:
        """The number of children by parent and status, without replaced ones and launches."""
        query = select(_jobs.c.parent, _jobs.c.status, func.count())
        query = query.where(_jobs.c.parent.in_(parents), _jobs.c.number >= 0)
        counts: dict[str, dict[str, int]] = {}
        with self._engine.connect() as connection:
            for parent, status, count in connection.execute(
                query.group_by(_jobs.c.parent, _jobs.c.status)
            ):
                counts.setdefault(parent, {})[status] = count
        return counts

    def names(self, parent: str) -> list[str]:
        """The names of all children, replaced ones too, oldest first."""
        query = select(_jobs.c.name).where(_jobs.c.parent == parent).order_by(_jobs.c.id)
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())
