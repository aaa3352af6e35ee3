"""Submit a job of any type."""

from __future__ import annotations

from allranks.server.dependencies import Services
from allranks.server.parents.notes import parent_notes
from allranks.server.parents.pipeline.create import create_pipeline
from allranks.server.parents.sweep.create import create_sweep
from allranks.server.submission.submit import Submission, notes
from allranks.spec.any_job import parse_any
from allranks.spec.ignored_keys import job_notes
from allranks.spec.job_type import job_type
from allranks.store.jobs.job_rows import JobRow


def create_parent(submission: Submission, services: Services, by: str) -> tuple[JobRow, list[str]]:
    """Record a sweep or a pipeline; returns it and notes for the submitter. A refused one leaves no
    trace."""
    kind = job_type(submission.spec)
    if kind == "pipeline":
        row = create_pipeline(submission, services, by)
    else:
        parse_any(submission.spec)  # refuses unknown types
        row = create_sweep(submission, services, by)
    noted = notes(row.plan, services.clusters.kind_of(row.plan.engine))
    return row, [*noted, *job_notes(row.spec), *parent_notes(row.spec)]
