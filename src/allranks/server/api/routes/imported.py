"""The route by which runs of other trackers become jobs that ran elsewhere."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from allranks import folder_trees
from allranks.agent.trackers import kept_images
from allranks.agent.trackers.readings import LARGEST_IMAGE
from allranks.api.jobs import ImportedJob
from allranks.core.data.state_manifest import is_path
from allranks.errors import Conflict, UsageError
from allranks.events import Event, Kind
from allranks.server.auth.roles import Person, Who, require_own
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.request_limits import Count
from allranks.server.jobs.view import signed, submitter
from allranks.server.submission.submit import Submission, plan
from allranks.statuses import JobStatus
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.new_job import NewJob, Outcome
from allranks.store.key_values import read_once
from allranks.store.metric_points import Source

# What a job was read from; and that its points are sent one to a line, so that more can follow.
_SOURCE, _LINES = "allranks.imported_from", "allranks.imported_lines"
_Time = Annotated[float, Field(ge=0, lt=1e11)]


class ImportedRun(BaseModel, extra="forbid"):
    """A run that ended elsewhere; times in seconds since the epoch. ``source`` is the file or
    folder that it was read from, of the first part if it was resumed; ``attempt`` numbers the
    parts. ``lines``: points as in ALLRANKS_METRICS_FILE, which start at the byte ``offset`` of all
    of them, or of those in the run's summary only. ``images``: as base64, by the path below the
    folder of images."""

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
    attempt: Annotated[int, Field(ge=1, le=10_000)] = 1
    lines: str = ""
    offset: Count = 0
    is_summary: bool = False
    images: dict[str, str] = {}


class ImportedRuns(BaseModel, extra="forbid"):
    """Several runs, or more points of some; all or none are new jobs."""

    runs: list[ImportedRun] = Field(max_length=1000)


def add(body: ImportedRuns, services: ServicesDep, who: Who) -> list[ImportedJob]:
    """Record runs, or more of their points. The same request again changes nothing. Raises Conflict
    if another job has the name of one."""
    new: dict[str, NewJob] = {}
    rows: dict[str, JobRow] = {}
    with read_once():
        for run in body.runs:
            if run.name not in new and run.name not in rows:
                if services.records.has(run.name):
                    rows[run.name] = services.records.get(run.name)
                    require_own(who, run.name, submitter(rows[run.name].spec))
                else:
                    new[run.name] = _job(run, services, who)
            spec = (new.get(run.name) or rows[run.name]).spec
            if (spec.get("properties") or {}).get(_SOURCE) != run.source:
                hint = "rename the run's folder, or delete that job"
                raise Conflict(f"another job is named {run.name!r}", where=run.source, hint=hint)
    rows |= {row.name: row for row in services.records.create_all([*new.values()])}
    for run in body.runs:
        rows[run.name] = _resumed(run, rows[run.name], services)
        _put_images(run, services.home.jobs / run.name)
    sizes = services.points.add_from_agents(
        [(_feed(run, rows[run.name]), run.offset, _lines(run, rows[run.name])) for run in body.runs]
    )
    services.annotations.add_parameters(
        {rows[run.name].id: run.parameters for run in body.runs if run.parameters}
    )
    return [
        {"name": run.name, "created": run.name in new, "size": size}
        for run, size in zip(body.runs, sizes, strict=True)
    ]


def _feed(run: ImportedRun, row: JobRow) -> Source:
    return Source(row.id, run.attempt, 0, "logged" if run.is_summary else "trackers")


def _lines(run: ImportedRun, row: JobRow) -> bytes:
    """None for a job that has them in other lines, imported by an earlier version."""
    return run.lines.encode() if _LINES in row.spec["properties"] else b""


def _put_images(run: ImportedRun, record: Path) -> None:
    """Raises UsageError for what is no image, and OSError."""
    for path, text in run.images.items():
        place = f"{kept_images.FOLDER}/{path}"
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            data = b""
        if not is_path(place) or not 0 < len(data) <= LARGEST_IMAGE:
            hint = "its path is relative, its content base64, of 10 MB at most"
            raise UsageError(f"{path[:80]!r} is no image", where="images", hint=hint)
        record.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (
            folder_trees.SkipAbsent(),  # another image is where its folder would be
            folder_trees.replace_file(record / place, record) as file,
        ):
            file.write(data)


def _resumed(run: ImportedRun, row: JobRow, services: Services) -> JobRow:
    """The job after a later part, or after more of its last one: it has ended as that did."""
    outcome = _outcome(run)
    is_same = (row.record.status, row.ended_at) == (outcome.status, outcome.ended)
    if run.attempt < row.record.attempt or (run.attempt == row.record.attempt and is_same):
        return row
    end = {"exit_code": outcome.exit_code, "error": outcome.error}
    result = {"status": str(outcome.status), "is_imported": True, **end}
    event = Event(Kind.FINISHED, outcome.ended, attempt=run.attempt, data=result)
    saved = services.records.apply(row, [event], ended_at=outcome.ended, **end)
    if saved is None:
        raise Conflict(f"{row.name} has changed meanwhile", hint="import it again")
    return saved


def _job(run: ImportedRun, services: Services, who: Person) -> NewJob:
    spec = {
        "name": run.name,
        "command": f": ran elsewhere, imported from {run.source}",
        "experiment_name": run.experiment,
        "display_name": run.display_name,
        "properties": {_SOURCE: run.source, _LINES: "1"},
    }
    made = plan(Submission(spec), services.planning()._replace(find=None))
    made = made._replace(compute="elsewhere")
    return NewJob(signed(spec, who.name), made, outcome=_outcome(run))


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
