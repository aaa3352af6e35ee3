"""Routes for the jobs of a home over time: finding, comparing, annotating and deleting them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query
from pydantic import BaseModel, Field

from allranks.errors import UsageError
from allranks.plan.job import list_filters as job_query
from allranks.server.auth.roles import OWNER, Who, hold_to_own
from allranks.server.dependencies import Services, services
from allranks.server.http.request_limits import Count
from allranks.server.jobs import view
from allranks.server.jobs.compare import comparison
from allranks.server.jobs.names import resolve
from allranks.store.job_rows import Damaged, JobRow

With = Annotated[Services, Depends(services)]
Several = Annotated[list[str], Query()]
Moment = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]
router = APIRouter(prefix="/api/v1")

_ARCHIVED = {"no": False, "only": True, "all": None}


class Wanted(BaseModel):
    """Which jobs, in which order: see `plan.job.query`. ``metrics``: tell their last values."""

    status: str | None = None
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

    def query(self) -> job_query.Query:
        """Raises UsageError for what cannot be read."""
        if self.archived not in _ARCHIVED:
            hint = f"one of {', '.join(_ARCHIVED)}"
            raise UsageError(f"{self.archived[:80]!r} is not known", where="archived", hint=hint)
        return job_query.Query(
            status=self.status,
            experiment=self.experiment,
            name=self.name,
            tags=tuple(job_query.tag(each) for each in self.tag),
            since=self.since,
            until=self.until,
            metrics=tuple(job_query.condition(each) for each in self.metric),
            sort=job_query.sort(self.sort),
            archived=_ARCHIVED[self.archived],
            limit=self.limit,
        )


class Changes(BaseModel, extra="forbid"):
    """What people may change of a job. Tags that are not named stay."""

    tags: dict[str, str] = {}
    remove_tags: list[str] = []
    archived: bool | None = None


@router.get("/jobs")
def list_jobs(with_: With, wanted: Annotated[Wanted, Query()]) -> list[dict[str, Any]]:
    """The jobs that match: the newest first, unless another order is asked for."""
    rows = with_.records.find(wanted.query())
    notes = with_.annotations.several(row.id for row in rows)
    values = with_.records.last_values(row.id for row in rows) if wanted.metrics else None
    return [
        view.listed(row, notes.get(row.id), values)
        if isinstance(row, JobRow)
        else view.damaged(row)
        for row in rows
    ]


@router.get("/resolve")
def name_of(with_: With, who: Who, job: str) -> dict[str, str]:
    """The name of the job that a person means by a prefix, `-` or `@last`."""
    return {"name": resolve(job, with_.records, who.name)}


@router.get("/compare")
def compare(with_: With, job: Several) -> dict[str, Any]:
    """What differs between jobs, by their names."""
    if len(job) < 2:
        raise UsageError("comparing takes two jobs or more", hint="?job=A&job=B")
    rows = [with_.records.get(name) for name in dict.fromkeys(job)]
    return comparison(rows, with_.records, with_.annotations, with_.blobs)


@router.patch("/jobs/{name}")
def change(name: str, with_: With, who: Who, changes: Annotated[Changes, Body()]) -> dict[str, Any]:
    """Set and remove tags of a job, hide it from lists or show it there again."""
    row = with_.records.get(name)
    hold_to_own(who, name, view.submitter(row.spec))
    if "" in changes.tags:
        raise UsageError("a tag needs a name", where="tags", hint="KEY=VALUE")
    if changes.tags or changes.remove_tags:
        with_.annotations.tag(row.id, changes.tags, changes.remove_tags)
    if changes.archived is not None:
        with_.annotations.archive(row.id, changes.archived)
    return view.job(row, with_.home, with_.annotations.of(row.id))


@router.delete("/jobs/{name}")
def delete(name: str, with_: With, who: Who) -> dict[str, Any]:
    """Remove an ended job for good: its record, outputs, logs and own state. Raises Conflict for
    one that has not ended, or whose outputs a job or a data asset needs."""
    from allranks.server.storage.delete_job import delete  # lazy: as in `clearing_routes`

    row = with_.records.read(name)
    hold_to_own(who, name, OWNER.name if isinstance(row, Damaged) else view.submitter(row.spec))
    return {"name": name, "bytes": delete(row, with_)}
