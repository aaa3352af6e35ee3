"""Routes to list, compare, annotate and delete jobs."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from allranks import clock
from allranks.api import jobs as api
from allranks.api.server import ChangesAnswer, VisitAnswer
from allranks.core.job import list_filters as job_query
from allranks.errors import UsageError
from allranks.server.arguments import BODY, QUERY
from allranks.server.auth.roles import OWNER, Person, Who, require_own
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.request_limits import Count
from allranks.server.jobs import view
from allranks.server.jobs.compare import comparison
from allranks.server.jobs.list_order import find_sorted
from allranks.server.jobs.resolve_job_name import LAST, newest, resolve
from allranks.server.parents import view as parents
from allranks.server.timestamps import iso_time
from allranks.store.jobs.job_rows import COMMAND, Damaged, JobRow

Moment = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]

# The key of all visits among a home's single values; seconds that are between two visits, and
# between two looks that are noted.
_VISITS, _PAUSE, _NOTED = "visits", 1800.0, 60.0
_ARCHIVED = {"no": False, "only": True, "all": None}


class ListRequest(BaseModel):
    """The filters and order of a list: see `core.job.list_filters`. ``status``: any of
    these. ``metrics``: add last values. ``mine``: only the caller's; ``since_visit``: only those
    that ended since their last visit."""

    status: list[str] = []
    experiment: str | None = None
    name: str | None = None
    tag: list[str] = []
    since: Moment = None
    until: Moment = None
    metric: list[str] = []
    sort: str = "-created"
    archived: str = "no"
    limit: Count = 50
    metrics: bool = False
    parent: str | None = None
    children: bool = False
    uses: str | None = None
    by: str | None = None
    mine: bool = False
    since_visit: bool = False

    def query(self, who: Person, visit: float) -> job_query.Query:
        """Raises UsageError for invalid values."""
        if self.archived not in _ARCHIVED:
            hint = f"use one of {', '.join(_ARCHIVED)}"
            raise UsageError(f"unknown value {self.archived[:80]!r}", where="archived", hint=hint)
        return job_query.Query(
            statuses=tuple(job_query.status(each) for each in self.status),
            experiment=self.experiment,
            name=self.name,
            tags=tuple(job_query.tag(each) for each in self.tag),
            since=self.since,
            until=self.until,
            metrics=tuple(job_query.condition(each) for each in self.metric),
            sort=job_query.sort(self.sort),
            archived=_ARCHIVED[self.archived],
            limit=self.limit,
            parent=self.parent,
            children=self.children,
            uses=self.uses,
            by=who.name if self.mine else self.by,
            ended_since=visit if self.since_visit else None,
        )


class Changes(BaseModel, extra="forbid"):
    """Changes of a job. Tags that are not named stay."""

    tags: dict[str, str] = {}
    remove_tags: list[str] = []
    archived: bool | None = None


def list_jobs(
    services: ServicesDep, who: Who, filters: Annotated[ListRequest, QUERY]
) -> list[api.ListedJob | api.DamagedJob]:
    """The matching jobs, by default the newest first."""
    query = filters.query(who, _visits(services, who).before)
    rows = find_sorted(services.records, services.annotations, query)
    notes = services.annotations.several(row.id for row in rows)
    values = services.records.last_values(row.id for row in rows) if filters.metrics else None
    names = [row.name for row in rows if isinstance(row, JobRow) and row.type != COMMAND]
    counts = services.children.counts(names) if names else {}
    best = {}
    if query.sort.best:
        best = services.records.best_values([row.id for row in rows], query.sort)
    return [
        view.listed(
            row, notes.get(row.id), values, counts.get(row.name), parents.total_children(row)
        )
        | ({"best": {query.sort.key: best[row.id]}} if row.id in best else {})
        if isinstance(row, JobRow)
        else view.damaged(row)
        for row in rows
    ]


class _Visits(NamedTuple):
    """When somebody looked at the page last, and when at their visit before; 0 for never."""

    last: float = 0.0
    before: float = 0.0


def _visits(services: Services, who: Person) -> _Visits:
    return _Visits(*(services.settings.get(_VISITS) or {}).get(who.name, ()))


def visit(services: ServicesDep, who: Who) -> VisitAnswer:
    """Note that the caller looks at what happened. Looks within half an hour are one visit."""
    now, visits = clock.now(), _visits(services, who)
    if now - visits.last > _NOTED:
        before = visits.last if now - visits.last > _PAUSE else visits.before
        services.settings.change(_VISITS, {who.name: [now, before]})
        visits = _Visits(now, before)
    return {"before": iso_time(visits.before or None)}


async def changes(
    services: ServicesDep,
    job: str = "",
    after: int | None = None,
    timeout: Annotated[float, Field(ge=0)] = 20.0,
) -> ChangesAnswer:
    """A number that grows with each change of the job, or of any job: once it is not ``after``, or
    after ``timeout`` seconds (at most 60). It starts again with the server."""
    if job:
        await run_in_threadpool(services.records.get, job)
    count = services.wakeups.count(job)
    if count == after:
        await services.wakeups.wait(job, count, min(timeout, 60.0))
    return {"number": services.wakeups.count(job)}


def name_of(
    services: ServicesDep,
    who: Who,
    job: str,
    mine: list[str] | None = None,
    whole: bool = False,
) -> api.ResolvedName:
    """The name of the job that a name, or unless ``whole`` a prefix, refers to. `-` and `@last` are
    the newest of the jobs ``mine``, those of the caller's terminal, or else the newest of the
    caller; ``newest_of`` ("terminal" or "user") says which."""
    if job in LAST:
        name, newest_of = newest(services.records, who.name, mine or ())
        return {"name": name, "newest_of": newest_of}
    return {"name": resolve(job, services.records, whole), "newest_of": ""}


def compare(services: ServicesDep, job: list[str]) -> api.ComparisonAnswer:
    """The differences between the named jobs."""
    if len(job) < 2:
        raise UsageError("name at least two jobs to compare", hint="?job=A&job=B")
    rows = [services.records.get(name) for name in dict.fromkeys(job)]
    return comparison(rows, services.records, services.annotations, services.blobs)


def change(
    name: str, services: ServicesDep, who: Who, changes: Annotated[Changes, BODY]
) -> api.JobRecord:
    """Set and remove tags of a job, archive or restore it."""
    row = services.records.get(name)
    require_own(who, name, view.submitter(row.spec))
    if "" in changes.tags:
        raise UsageError("a tag needs a name", where="tags", hint="use KEY=VALUE")
    if changes.tags or changes.remove_tags:
        services.annotations.tag(row.id, changes.tags, changes.remove_tags)
    if changes.archived is not None:
        services.annotations.archive(row.id, changes.archived)
    return view.job(row, services.home, services.annotations.of(row.id))


def delete(name: str, services: ServicesDep, who: Who) -> api.DeletedJob:
    """Delete an ended job with its outputs, logs and own state: see `storage.delete_job`."""
    from allranks.server.storage.delete_job import delete  # lazy: as in `routes.gc`

    row = services.records.read(name)
    require_own(who, name, OWNER.name if isinstance(row, Damaged) else view.submitter(row.spec))
    return {"name": name, "bytes": delete(row, services)}
