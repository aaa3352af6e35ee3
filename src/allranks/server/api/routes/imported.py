"""The route by which runs of other trackers become jobs that ran elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from allranks.api.jobs import ImportedJob
from allranks.errors import Conflict
from allranks.server.auth.roles import Who, require_own
from allranks.server.dependencies import ServicesDep
from allranks.server.http.request_limits import Count
from allranks.server.jobs.view import signed, submitter
from allranks.server.submission.submit import Submission, plan
from allranks.statuses import JobStatus
from allranks.store.jobs.new_job import Outcome
from allranks.store.metric_points import Source

_SOURCE = "allranks.imported_from"
_Time = Annotated[float, Field(ge=0, lt=1e11)]


class ImportedRun(BaseModel, extra="forbid"):
    """A run that ended elsewhere; times in seconds since the epoch. ``source`` is the file or
    folder that it was read from. ``lines``: points as in ALLRANKS_METRICS_FILE, which start at the
    byte ``offset`` of all of them."""

    name: str
    experiment: str
    display_name: str
    source: str
    status: Literal["Completed", "Failed"] = "Completed"
    message: str = ""
    exit_code: int | None = None
    began: _Time
    ended: _Time
    parameters: dict[str, str] = {}
    lines: str = ""
    offset: Count = 0


def add(run: ImportedRun, services: ServicesDep, who: Who) -> ImportedJob:
    """Record a run, or more of its points. The same request again changes nothing. Raises Conflict
    if another job has the name."""
    properties = {_SOURCE: run.source}
    created = not services.records.has(run.name)
    if created:
        spec = {
            "name": run.name,
            "command": f": ran elsewhere, imported from {run.source}",
            "experiment_name": run.experiment,
            "display_name": run.display_name,
            "properties": properties,
        }
        made = plan(
            Submission(spec),
            services.home,
            services.clusters,
            services.environments,
            services.datastores,
        )
        made = made._replace(compute="elsewhere")
        row = services.records.create(signed(spec, who.name), made, outcome=_outcome(run))
    else:
        row = services.records.get(run.name)
        require_own(who, run.name, submitter(row.spec))
        if (row.spec.get("properties") or {}).get(_SOURCE) != run.source:
            hint = "rename the run's folder, or delete that job"
            raise Conflict(f"another job is named {run.name!r}", where=run.source, hint=hint)
    source = Source(row.id, 1, 0, "trackers")
    size = services.points.add_from_agent(source, run.offset, run.lines.encode())
    if run.parameters:
        services.annotations.add_parameters(row.id, run.parameters)
    return {"name": row.name, "created": created, "size": size}


def _outcome(run: ImportedRun) -> Outcome:
    status = JobStatus(run.status)
    if status is JobStatus.COMPLETED:
        return Outcome(status, run.began, run.ended, 0)
    return Outcome(
        status,
        run.began,
        run.ended,
        run.exit_code,
        {
            "reason": "RANK_EXITED",
            "blame": "user",
            "message": run.message or "it failed elsewhere",
            "hint": "",
            "node": None,
            "rank": None,
        },
    )
