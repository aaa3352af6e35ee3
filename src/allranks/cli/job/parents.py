"""Show a job with children, by its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allranks.cli.job.children import ChildrenViewer
from allranks.cli.output import show
from allranks.cli.output.failure import took

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer


def viewer(job: JobAnswer, *, prefixed: bool | None = None, **options: Any) -> ChildrenViewer:
    """The viewer of a sweep or a pipeline, with the ``options`` of ``ChildrenViewer``."""
    if job["type"] == "sweep":
        from allranks.cli.job.sweep import SweepViewer  # lazy: one of the two

        # Without names the lines of trials, all of the same script, cannot be told apart.
        return SweepViewer(job["name"], prefixed=prefixed is not False, **options)
    from allranks.cli.job.pipeline import PipelineViewer  # lazy: one of the two

    if prefixed is None and job["total_steps"] > 1:
        prefixed = True  # as above: steps run at the same time
    return PipelineViewer(job["name"], prefixed=prefixed, **options)


def show_result(job: JobAnswer) -> None:
    """Print how a sweep or a pipeline ended, and how long that took since it was last resumed."""
    from allranks.cli.job import pipeline, sweep  # lazy: one of the two

    (sweep if job["type"] == "sweep" else pipeline).show_result(job, took(job))


def show_parent(job: JobAnswer) -> None:
    """Print the fields of a sweep or a pipeline, and its children."""
    from allranks.cli.job import pipeline, sweep  # lazy: one of the two

    of_type = sweep if job["type"] == "sweep" else pipeline
    reason = f" ({job['status_reason']})" if job["status_reason"] else ""
    fields = [
        ("name", job["name"]),
        ("type", job["type"]),
        *([("parent", job["parent_job_name"])] if job["parent_job_name"] else []),
        ("status", job["status"] + reason),
        ("experiment", job["experiment_name"]),
        ("compute", job["compute"]),
        *of_type.fields(job),
        ("created", show.moment(job["created_at"])),
        ("started", show.moment(job["started_at"])),
        ("ended", show.moment(job["ended_at"])),
        *((f"output {name}", path) for name, path in job["outputs"].items()),
    ]
    if job["error"]:
        fields += [("error", job["error"]["message"]), ("hint", job["error"]["hint"])]
    for name, value in fields:
        show.field(name, value)
    of_type.show_children(job)
