"""Jobs and their events as rows: each change appends and folds events in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, Select, and_, bindparam, delete, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from allranks import clock
from allranks.core.job.list_filters import Query, Sort
from allranks.core.lifecycle.decide import Job
from allranks.core.lifecycle.fold import fold
from allranks.core.plan import Plan
from allranks.errors import Conflict, NotFound, UsageError
from allranks.events import FROM_AGENTS, Event
from allranks.statuses import TERMINAL
from allranks.store import metric_points
from allranks.store.jobs import event_rows, job_rows, job_search
from allranks.store.jobs.latest import Latest
from allranks.store.jobs.new_job import DELETED, NewJob, insert_job, is_deleted, name_taken
from allranks.store.tables import deleted_jobs as _deleted
from allranks.store.tables import job_annotations as _annotations
from allranks.store.tables import jobs as _jobs

# Ids in one query: databases have a limit.
_BATCH = 500
# Statements of every change, built once: building takes SQLAlchemy longer than running them.
_LOCKED = (
    select(_jobs.c.id, _jobs.c.version).where(_jobs.c.name == bindparam("name")).with_for_update()
)
_WHOLE = select(_jobs).where(_jobs.c.id == bindparam("job_id"))
_UNCHANGED = (
    select(_jobs.c.id)
    .where(_jobs.c.id == bindparam("job_id"), _jobs.c.version == bindparam("seen"))
    .with_for_update()
)

if TYPE_CHECKING:
    from allranks.store.jobs.job_notes import JobNotes
_BY_NAME = select(_jobs.c.id).where(_jobs.c.name == bindparam("name"))
_SAVE = update(_jobs).where(_jobs.c.id == bindparam("job_id"))


class Records:
    """The jobs and events in a database. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)
        self._latest = Latest(self._read_live)
        # Jobs created by this object, so that the loop notices a new one without a query.
        self.created = 0

    def create(
        self,
        spec: dict[str, Any],
        plan: Plan,
        about: Mapping[str, Any] | None = None,
        *,
        type: str = job_rows.COMMAND,
        child: job_rows.Child | None = None,
        ended: bool = False,
        notes: JobNotes | None = None,
    ) -> job_rows.JobRow:
        """Create a job with status NotStarted, or Completed if it has ``ended`` without running;
        ``about`` is added to its first event. Raises Conflict if a job has, or a deleted one had,
        that name, or if the parent of ``child`` has a child of that number."""
        new = NewJob(spec, plan, about or {}, type, child, ended, notes=notes or {})
        return self.create_all([new])[0]

    def create_all(self, jobs: Sequence[NewJob]) -> list[job_rows.JobRow]:
        """Create several jobs, all or none. Raises like ``create``."""
        if not self._latest.any_live():
            clock.begin_anew()  # no job is live, so a corrected system clock can be used
        now = clock.now()
        with self._engine.begin() as connection:
            rows = [insert_job(connection, job, now) for job in jobs]
        self.created += len(rows)
        return [self._latest.keep(row) for row in rows]

    def latest(self, name: str) -> job_rows.JobRow | None:
        """A job as this process last wrote or read it, without a query, for polling; or None."""
        return self._latest.get(name)

    def get(self, name: str) -> job_rows.JobRow:
        """The job of that name. Raises NotFound, and Conflict if it is damaged."""
        latest = self._latest.get(name)
        if latest is not None:
            return latest
        row = self.read(name)
        if isinstance(row, job_rows.Damaged):
            message = f"the record of the job {name!r} is damaged: {row.reason}"
            raise Conflict(message, hint=f"remove it: allranks job delete {name}")
        return self._latest.keep(row)

    def with_ranks(self, name: str) -> job_rows.JobRow:
        """A job that runs a command itself. Raises like ``get``, and UsageError for others."""
        row = self.get(name)
        if row.type != job_rows.COMMAND:
            hint = f"name one of its jobs: allranks job list --parent {name}"
            raise UsageError(f"{name} is a {row.type} and has no ranks of its own", hint=hint)
        return row

    def answering(self, name: str) -> job_rows.JobRow:
        """The job whose files and metrics answer for a name: of an ended sweep its best trial, of a
        reused step the job whose result it took, else the job itself. Raises like ``get``."""
        row = self.get(name)
        while (other := row.notes.get("reused") or _best(row)) and self.has(other):
            row = self.get(other)
        return row

    def read(self, name: str) -> job_rows.JobRow | job_rows.Damaged:
        """The job of that name, read from the database. Raises NotFound."""
        rows = self._read_rows(select(_jobs).where(_jobs.c.name == name))
        if not rows:
            raise _no_job(name)
        return rows[0]

    def find(self, query: Query) -> list[job_rows.JobRow | job_rows.Damaged]:
        """The matching jobs, in the requested order."""
        return [row for page in self.pages(self.ids(query)) for row in page]

    def ids(self, query: Query) -> list[int]:
        """The ids of the matching jobs, in the requested order."""
        with self._reading.connect() as connection:
            return job_search.search(connection, query)

    def pages(self, ids: Sequence[int]) -> Iterator[list[job_rows.JobRow | job_rows.Damaged]]:
        """The jobs with these ids that are still there, in that order, some at a time."""
        for start in range(0, len(ids), _BATCH):
            some = ids[start : start + _BATCH]
            query = select(_jobs).where(_jobs.c.id.in_(some))
            rows = {row.id: row for row in self._read_rows(query)}
            yield [rows[job_id] for job_id in some if job_id in rows]

    def last_values(self, job_ids: Iterable[int]) -> dict[int, dict[str, float | str]]:
        """See ``job_search.last_values``."""
        with self._reading.connect() as connection:
            return job_search.last_values(connection, job_ids)

    def best_values(self, job_ids: Iterable[int], sort: Sort) -> dict[int, float]:
        """See ``job_search.best_values``."""
        with self._reading.connect() as connection:
            return job_search.best_values(connection, job_ids, sort)

    def live(self) -> list[job_rows.JobRow]:
        """The jobs that have not ended, oldest first, without damaged ones."""
        return self._latest.live()

    def _read_live(self) -> Iterator[job_rows.JobRow]:
        rows = self._read_rows(select(_jobs).where(_jobs.c.live == 1))
        return (row for row in rows if isinstance(row, job_rows.JobRow))

    def _read_rows(self, query: Select[Any]) -> list[job_rows.JobRow | job_rows.Damaged]:
        with self._reading.connect() as connection:
            try:
                return [job_rows.job_row(row) for row in connection.execute(query)]
            except job_rows.UNREADABLE:
                ids = connection.execute(query.with_only_columns(_jobs.c.id)).scalars().all()
                return [job_rows.read_one(connection, job_id) for job_id in ids]

    def uses(self) -> list[job_rows.Uses]:
        """What each job refers to, oldest first, without damaged ones."""
        task = _jobs.c.plan["task"]
        of_task = (task[key] for key in job_rows.TASK_KEYS)
        facts = (_jobs.c.name, _jobs.c.live, _jobs.c.created_at, _jobs.c.ended_at)
        of_spec = (_jobs.c.spec[key] for key in ("jobs", "component", "properties"))
        rest = (_jobs.c.notes, *of_spec)
        query = select(*facts, _jobs.c.spec["inputs"], *of_task, *rest).order_by(_jobs.c.id)
        with self._reading.connect() as connection:
            try:
                result = connection.execute(query)
                return [job_rows.Uses(*tuple(row))._replace(live=bool(row.live)) for row in result]
            except (DBAPIError, *job_rows.UNREADABLE):
                pass  # a text that the database cannot extract from its JSON
        rows = self._read_rows(select(_jobs).order_by(_jobs.c.id))
        return [job_rows.uses_of(row) for row in rows if isinstance(row, job_rows.JobRow)]

    def delete_job(self, name: str, *, damaged: bool = False) -> None:
        """Delete an ended job with its events and points. Its name is not reused. A live job stays,
        unless it is ``damaged`` and so cannot end."""
        ended = _jobs.c.name == name
        if not damaged:
            ended = and_(ended, _jobs.c.live == 0)
        with self._engine.begin() as connection:
            job_id = connection.execute(select(_jobs.c.id).where(ended)).scalar_one_or_none()
            if job_id is None:
                return
            event_rows.delete_events(connection, job_id)
            metric_points.delete_points(connection, job_id)
            connection.execute(_deleted.insert().values(name=name, deleted_at=clock.now()))
            connection.execute(delete(_jobs).where(_jobs.c.id == job_id))
        self._latest.forget(name)

    def has(self, name: str) -> bool:
        """Whether a job has that name."""
        with self._reading.connect() as connection:
            return connection.execute(_BY_NAME, {"name": name}).first() is not None

    def names_with_prefix(self, prefix: str, most: int) -> list[str]:
        """Job names that start with ``prefix``, newest first; of children only if no other job's
        name does."""
        with self._reading.connect() as connection:
            return job_search.names_with_prefix(connection, prefix, most)

    def recent(self, names: Collection[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and spec of the jobs that are not archived and no children, newest first; of those
        with one of ``names``, if given."""
        query = select(_jobs.c.id, _jobs.c.name, _jobs.c.spec).order_by(_jobs.c.id.desc())
        query = query.join(_annotations, _annotations.c.job_id == _jobs.c.id)
        query = query.where(_annotations.c.archived_at.is_(None), _jobs.c.parent.is_(None))
        if names:
            query = query.where(_jobs.c.name.in_(names))
        query = query.limit(_BATCH)
        older = query
        while True:
            with self._reading.connect() as connection:
                page = connection.execute(older).all()
            yield from ((row.name, row.spec) for row in page)
            if len(page) < _BATCH:
                return
            older = query.where(_jobs.c.id < page[-1].id)

    def ever_existed(self, name: str) -> bool:
        """Whether a job has, or a deleted one had, that name."""
        with self._reading.connect() as connection:
            row = connection.execute(_BY_NAME, {"name": name}).first()
            return row is not None or is_deleted(connection, name)

    def check_name_is_free(self, name: str) -> None:
        """Raise Conflict for a name that ``create`` would refuse."""
        if self.has(name):
            raise name_taken(name, "already exists")
        if self.ever_existed(name):
            raise name_taken(name, DELETED)

    def events(self, name: str, after: int = 0) -> list[event_rows.StoredEvent]:
        """The job's events with an id above ``after``, in order."""
        with self._reading.connect() as connection:
            row = connection.execute(select(_jobs.c.id).where(_jobs.c.name == name)).first()
            return [] if row is None else event_rows.read_events(connection, row.id, after)

    def notes(self, row: job_rows.JobRow, about: str) -> list[Event]:
        """The notes about one thing in the newest attempt of a job, in order. Reads few of its
        events, which may be tens of thousands."""
        job = row.record
        with self._reading.connect() as connection:
            return event_rows.read_notes(connection, row.id, about, job.launch, job.attempt)

    def apply(
        self, row: job_rows.JobRow, events: Sequence[Event], **columns: Any
    ) -> job_rows.JobRow | None:
        """Append events decided from ``row``.

        Returns None if the job has changed: decide again. Effects are idempotent, so repeating
        them is harmless.
        """
        same = {"job_id": row.id, "seen": row.version}
        with self._engine.begin() as connection:
            if connection.execute(_UNCHANGED, same).first() is None:
                return None
            job = row.record
            for event in events:
                job = fold(job, event)
            event_rows.insert_events(connection, row.id, events)
            saved = _save(connection, row, job, **columns)
        return self._latest.keep(saved)

    def append(
        self, name: str, events: Sequence[Event], notes: JobNotes | None = None
    ) -> job_rows.JobRow:
        """Append events of agents or users; outdated and repeated ones are dropped. ``notes``
        replace the job's notes in the same transaction. Raises NotFound."""
        with self._engine.begin() as connection:
            saved = self._append(connection, name, events, notes)
        return self._latest.keep(saved)

    def append_all(self, events: Mapping[str, Sequence[Event]]) -> dict[str, job_rows.JobRow]:
        """Append events to several jobs, to all or none; the jobs after them. Raises NotFound."""
        with self._engine.begin() as connection:
            saved = [self._append(connection, *item, None) for item in events.items()]
        return {row.name: self._latest.keep(row) for row in saved}

    def _append(
        self,
        connection: Connection,
        name: str,
        events: Sequence[Event],
        notes: JobNotes | None,
    ) -> job_rows.JobRow:
        row = self._locked(connection, name)
        job, new = row.record, []
        for event in events:
            after = fold(job, event)
            if after is not job or event.kind not in FROM_AGENTS:
                new.append(event)
            job = after
        if not new and notes is None:
            return row
        event_rows.insert_events(connection, row.id, new)
        return _save(connection, row, job, **({} if notes is None else {"notes": notes}))

    def _locked(self, connection: Connection, name: str) -> job_rows.JobRow:
        """The job as it is, locked until the end of the transaction. Raises NotFound."""
        current = connection.execute(_LOCKED, {"name": name}).first()
        if current is None:
            raise _no_job(name)
        latest = self._latest.get(name)
        if latest is not None and (latest.id, latest.version) == tuple(current):
            return latest  # without decoding it again
        return job_rows.job_row(connection.execute(_WHOLE, {"job_id": current.id}).one())

    def reopen(
        self,
        row: job_rows.JobRow,
        event: Event,
        spec: Mapping[str, Any],
        replaced: Mapping[int, int],
    ) -> job_rows.JobRow:
        """Make an ended job with children live again, with a new spec. Children with an id in
        ``replaced`` lose their number, which the job's notes keep in ``again``. Raises Conflict if
        the job has changed."""
        mine = and_(_jobs.c.id == row.id, _jobs.c.version == row.version, _jobs.c.live == 0)
        with self._engine.begin() as connection:
            if connection.execute(select(_jobs.c.id).where(mine).with_for_update()).first() is None:
                hint = f"see its status: allranks job show {row.name}"
                raise Conflict(f"{row.name} has changed meanwhile", hint=hint)
            for child_id in replaced:
                connection.execute(update(_jobs).where(_jobs.c.id == child_id).values(number=None))
            event_rows.insert_events(connection, row.id, [event])
            notes: Any = {
                key: value for key, value in row.notes.items() if key not in job_rows.OF_THE_END
            }
            notes["again"] = sorted({*notes.get("again", ()), *replaced.values()})
            values = {"spec": dict(spec), "live": 1, "notes": notes}
            values |= dict.fromkeys(("ended_at", "exit_code", "error"))
            saved = _save(connection, row, fold(row.record, event), **values)
        return self._latest.keep(saved)


def _best(row: job_rows.JobRow) -> str | None:
    return row.notes.get("best") if row.type == "sweep" else None


def _no_job(name: str) -> NotFound:
    return NotFound(f"job {name!r} not found", hint="list jobs: allranks job list")


def _save(
    connection: Connection, row: job_rows.JobRow, job: Job, **columns: Any
) -> job_rows.JobRow:
    """Write ``job`` as the record, with other ``columns``. Returns the row as it is now."""
    columns |= {"version": row.version + 1}
    if job.started_at is not None:
        columns["started_at"] = job.started_at
    stored: dict[str, Any] = {"record": job_rows.pack_job(job), "status": str(job.status)}
    if job.status in TERMINAL:
        stored["live"] = 0
    connection.execute(_SAVE, {"job_id": row.id, **columns, **stored})
    fields = {name: value for name, value in columns.items() if name in job_rows.JobRow._fields}
    return row._replace(record=job, **fields)
