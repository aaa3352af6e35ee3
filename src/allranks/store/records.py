"""Jobs and their events as rows: every change is events appended and folded, in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, Row, Select, and_, delete, func, or_, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from allranks import clock
from allranks.errors import Conflict, NotFound
from allranks.events import FROM_AGENTS, Event, Kind
from allranks.plan.job.list_filters import Query
from allranks.plan.lifecycle import decide
from allranks.plan.lifecycle.decide import Job
from allranks.plan.lifecycle.fold import fold
from allranks.plan.plan import Plan, pack
from allranks.statuses import TERMINAL
from allranks.store import job_search, metric_points
from allranks.store.annotations import add as annotate
from allranks.store.database import deleted_jobs as _deleted
from allranks.store.database import events as _events
from allranks.store.database import job_annotations as _annotations
from allranks.store.database import jobs as _jobs
from allranks.store.job_rows import (
    OF_TASK,
    UNREADABLE,
    Damaged,
    JobRow,
    Uses,
    job_row,
    read_one,
    uses_of,
)

# Jobs kept in memory beside those that are live.
_REMEMBERED = 512
# Ids in one question: databases have a limit.
_AT_ONCE = 500


class StoredJob(NamedTuple):
    """An event with its number in the record."""

    id: int
    event: Event


class Records:
    """The record of one database. Safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)
        self._latest: dict[str, JobRow] = {}
        self._lock = threading.Lock()
        # How many jobs came in by this object: whether one did is seen without asking.
        self.created = 0

    def create(
        self, spec: dict[str, Any], plan: Plan, about: Mapping[str, Any] | None = None
    ) -> JobRow:
        """A new job, NotStarted; its first event also tells what is ``about`` it. Raises Conflict
        when the name is taken, or was a deleted job's."""
        if all(row.record.status in TERMINAL for row in list(self._latest.values())):
            clock.begin_anew()  # nobody waits for anything: a clock that was set right counts
        now = clock.now()
        record = decide.new(plan.gang.nodes)
        values = {
            "name": plan.task.job,
            "experiment": plan.task.experiment,
            "status": str(record.status),
            "live": 1,
            "version": 0,
            "created_at": now,
            "spec": spec,
            "plan": pack(plan),
            "record": pack(record),
        }
        created = Event(Kind.CREATED, now, data={"digest": plan.digest, **(about or {})})
        with self._engine.begin() as connection:
            if _is_deleted(connection, plan.task.job):
                raise _taken(plan.task.job, "was deleted, and no other gets its name")
            try:
                found = connection.execute(_jobs.insert().values(**values).returning(_jobs.c.id))
            except IntegrityError:
                raise _taken(plan.task.job, "already exists") from None
            job_id = found.scalar_one()
            _insert(connection, job_id, [created])
            annotate(connection, job_id, plan.task.job, spec)
        self.created += 1
        return self.get(plan.task.job)

    def latest(self, name: str) -> JobRow | None:
        """A job as this process last wrote or read it, without asking the database: for those who
        look again and again while they wait."""
        return self._latest.get(name)

    def get(self, name: str) -> JobRow:
        """The job of that name; raises NotFound, and Conflict for one that is damaged."""
        latest = self._latest.get(name)
        if latest is not None:
            return latest
        row = self.read(name)
        if isinstance(row, Damaged):
            message = f"the record of the job {name!r} is damaged: {row.reason}"
            raise Conflict(message, hint=f"remove it: allranks job delete {name}")
        return self._keep(row)

    def read(self, name: str) -> JobRow | Damaged:
        """The job of that name as it is stored; raises NotFound."""
        found = self._several(select(_jobs).where(_jobs.c.name == name))
        if not found:
            raise _no_job(name)
        return found[0]

    def find(self, wanted: Query) -> list[JobRow | Damaged]:
        """The jobs that match, in the order that is asked for."""
        with self._reading.connect() as connection:
            ids = job_search.search(connection, wanted)
        rows: dict[int, JobRow | Damaged] = {}
        for start in range(0, len(ids), _AT_ONCE):
            some = select(_jobs).where(_jobs.c.id.in_(ids[start : start + _AT_ONCE]))
            rows |= {row.id: row for row in self._several(some)}
        return [rows[each] for each in ids if each in rows]

    def last_values(self, job_ids: Iterable[int]) -> dict[int, dict[str, float | str]]:
        """As ``job_search.last_values``."""
        with self._reading.connect() as connection:
            return job_search.last_values(connection, job_ids)

    def live(self) -> list[JobRow]:
        """The jobs that have not ended, oldest first. Damaged ones cannot go on: without them."""
        query = select(_jobs).where(_jobs.c.live == 1).order_by(_jobs.c.id)
        return [row for row in self._several(query) if isinstance(row, JobRow)]

    def _several(self, query: Select[Any]) -> list[JobRow | Damaged]:
        """The jobs of a query. One that cannot be read is told of as damaged."""
        with self._reading.connect() as connection:
            try:
                return [job_row(row) for row in connection.execute(query)]
            except UNREADABLE:
                ids = connection.execute(query.with_only_columns(_jobs.c.id)).scalars().all()
                return [read_one(connection, each) for each in ids]

    def uses(self) -> list[Uses]:
        """What every job makes use of, oldest first. A damaged one cannot use anything."""
        task = _jobs.c.plan["task"]
        of_task = (task[key] for key in OF_TASK)
        facts = (_jobs.c.name, _jobs.c.live, _jobs.c.created_at, _jobs.c.ended_at)
        query = select(*facts, _jobs.c.spec["inputs"], *of_task).order_by(_jobs.c.id)
        with self._reading.connect() as connection:
            try:
                found = connection.execute(query)
                return [Uses(*row)._replace(live=bool(row.live)) for row in found]
            except (DBAPIError, *UNREADABLE):
                pass  # a text in it that this database cannot take out of its JSON
        rows = self._several(select(_jobs).order_by(_jobs.c.id))
        return [uses_of(row) for row in rows if isinstance(row, JobRow)]

    def forget(self, name: str, *, damaged: bool = False) -> None:
        """Take an ended job out of the record, with its events. Its name is not given again. One
        that lives stays, unless it is ``damaged`` and so cannot end."""
        ended = _jobs.c.name == name
        if not damaged:
            ended = and_(ended, _jobs.c.live == 0)
        with self._engine.begin() as connection:
            found = connection.execute(select(_jobs.c.id).where(ended)).scalar_one_or_none()
            if found is None:
                return
            connection.execute(delete(_events).where(_events.c.job_id == found))
            metric_points.forget(connection, found)
            connection.execute(_deleted.insert().values(name=name, deleted_at=clock.now()))
            connection.execute(delete(_jobs).where(_jobs.c.id == found))
        with self._lock:
            self._latest.pop(name, None)

    def has(self, name: str) -> bool:
        """Whether a job has that name."""
        query = select(_jobs.c.id).where(_jobs.c.name == name)
        with self._reading.connect() as connection:
            return connection.execute(query).first() is not None

    def beginning(self, prefix: str, most: int) -> list[str]:
        """The names that begin so, the newest jobs' first."""
        query = select(_jobs.c.name).where(func.substr(_jobs.c.name, 1, len(prefix)) == prefix)
        with self._reading.connect() as connection:
            found = connection.execute(query.order_by(_jobs.c.id.desc()).limit(most))
            return list(found.scalars())

    def recent(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and spec of the jobs that are not archived, the newest first."""
        query = select(_jobs.c.id, _jobs.c.name, _jobs.c.spec).order_by(_jobs.c.id.desc())
        query = query.join(_annotations, _annotations.c.job_id == _jobs.c.id)
        query = query.where(_annotations.c.archived_at.is_(None)).limit(_AT_ONCE)
        older = query
        while True:
            with self._reading.connect() as connection:
                page = connection.execute(older).all()
            yield from ((row.name, row.spec) for row in page)
            if len(page) < _AT_ONCE:
                return
            older = query.where(_jobs.c.id < page[-1].id)

    def had(self, name: str) -> bool:
        """Whether a job has that name, or a deleted one had it."""
        with self._reading.connect() as connection:
            known = connection.execute(select(_jobs.c.id).where(_jobs.c.name == name)).first()
            return known is not None or _is_deleted(connection, name)

    def hold_to_new(self, name: str) -> None:
        """Raises Conflict for a name that ``create`` would refuse now."""
        if self.has(name):
            raise _taken(name, "already exists")
        if self.had(name):
            raise _taken(name, "was deleted, and no other gets its name")

    def events(self, name: str, after: int = 0) -> list[StoredJob]:
        """The job's events in the order they were recorded, those numbered over ``after``."""
        query = (
            select(_events)
            .join(_jobs, _jobs.c.id == _events.c.job_id)
            .where(_jobs.c.name == name, _events.c.id > after)
            .order_by(_events.c.id)
        )
        with self._reading.connect() as connection:
            return [StoredJob(row.id, _event(row)) for row in connection.execute(query)]

    def claim(self, job_id: int, owner: str, seconds: float) -> JobRow | None:
        """Lease the job to ``owner``; None when another holds it."""
        now = clock.now()
        free = or_(_jobs.c.lease_until.is_(None), _jobs.c.lease_until < now)
        mine = _jobs.c.lease_owner == owner
        claimed = (
            update(_jobs)
            .where(_jobs.c.id == job_id, or_(free, mine))
            .values(lease_owner=owner, lease_until=now + seconds)
            .returning(_jobs)
        )
        with self._engine.begin() as connection:
            row = connection.execute(claimed).first()
        return None if row is None else job_row(row)

    def apply(
        self, row: JobRow, owner: str, happened: Sequence[Event], **columns: Any
    ) -> JobRow | None:
        """Append events decided upon ``row``, and let go of the lease if ``owner`` holds it.

        None when the job changed since, or another holds its lease: decide again. The effect that
        was done is done; doing it twice is doing it once.
        """
        ours = and_(
            _jobs.c.id == row.id,
            _jobs.c.version == row.version,
            or_(_jobs.c.lease_owner.is_(None), _jobs.c.lease_owner == owner),
        )
        with self._engine.begin() as connection:
            current = connection.execute(select(_jobs).where(ours).with_for_update()).first()
            if current is None:
                return None
            job = row.record
            for event in happened:
                job = fold(job, event)
            _insert(connection, row.id, happened)
            saved = _save(connection, row, job, lease_owner=None, lease_until=None, **columns)
        return self._keep(saved)

    def hear(self, name: str, happened: Sequence[Event]) -> JobRow:
        """Append what agents or people say. What is old, or said twice, changes nothing."""
        with self._engine.begin() as connection:
            found = connection.execute(
                select(_jobs).where(_jobs.c.name == name).with_for_update()
            ).first()
            if found is None:
                raise _no_job(name)
            row = job_row(found)
            job, news = row.record, []
            for event in happened:
                after = fold(job, event)
                if after is not job or event.kind not in FROM_AGENTS:
                    news.append(event)
                job = after
            if not news:
                return row
            _insert(connection, row.id, news)
            saved = _save(connection, row, job)
        return self._keep(saved)

    def _keep(self, row: JobRow) -> JobRow:
        """Remember the newest of a job, also of one that has ended: who read an older one before
        must not put it in the newer's place. A database has one server, its home's lock sees to
        it; one that several share must ask it instead."""
        with self._lock:
            known = self._latest.get(row.name)
            if known is not None and known.version >= row.version:
                return known
            self._latest[row.name] = row
            if len(self._latest) > _REMEMBERED:
                ended = [n for n, each in self._latest.items() if each.record.status in TERMINAL]
                for name in ended[: _REMEMBERED // 2]:
                    del self._latest[name]
        return row

    def release(self, job_id: int, owner: str) -> None:
        ours = and_(_jobs.c.id == job_id, _jobs.c.lease_owner == owner)
        with self._engine.begin() as connection:
            connection.execute(update(_jobs).where(ours).values(lease_owner=None, lease_until=None))


def _is_deleted(connection: Connection, name: str) -> bool:
    query = select(_deleted.c.name).where(_deleted.c.name == name)
    return connection.execute(query).first() is not None


def _taken(name: str, why: str) -> Conflict:
    hint = "give it another name, or none: one is made up"
    return Conflict(f"a job named {name!r} {why}", where="name", hint=hint)


def _no_job(name: str) -> NotFound:
    hint = "`allranks job list` shows those there are"
    return NotFound(f"there is no job named {name!r}", hint=hint)


def _save(connection: Connection, row: JobRow, job: Job, **columns: Any) -> JobRow:
    columns |= {"version": row.version + 1, "record": pack(job), "status": str(job.status)}
    if job.started_at is not None:
        columns["started_at"] = job.started_at
    if job.status in TERMINAL:
        columns["live"] = 0
    saved = update(_jobs).where(_jobs.c.id == row.id).values(**columns).returning(_jobs)
    return job_row(connection.execute(saved).one())


def _insert(connection: Connection, job_id: int, happened: Sequence[Event]) -> None:
    rows = [{**event._asdict(), "kind": str(event.kind), "job_id": job_id} for event in happened]
    if rows:
        connection.execute(_events.insert(), [{**row, "data": pack(row["data"])} for row in rows])


def _event(row: Row[Any]) -> Event:
    return Event(
        Kind(row.kind), row.at, row.launch, row.attempt, row.node, row.rank, row.seq, row.data
    )
