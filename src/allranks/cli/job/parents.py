"""Show a job with children, by its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.cli.job.children import ChildrenViewer
from allranks.cli.output.failure import exit_code


def viewer(
    job: Mapping[str, Any], *, prefixed: bool | None = None, **options: Any
) -> ChildrenViewer:
    """The viewer of a sweep or a pipeline, with the ``options`` of ``ChildrenViewer``."""
    if job["type"] == "sweep":
        from allranks.cli.job.sweep import SweepViewer  # lazy: one of the two

        # Without names the lines of trials, all of the same script, cannot be told apart.
        return SweepViewer(job["name"], prefixed=prefixed is not False, **options)
    from allranks.cli.job.pipeline import PipelineViewer  # lazy: one of the two

    return PipelineViewer(job["name"], prefixed=prefixed, **options)


def verdict(job: dict[str, Any], *, quiet: bool = False) -> int:
    """Print how a sweep or a pipeline ended. Returns its exit code."""
    from allranks.cli.job import pipeline, sweep  # lazy: one of the two

    if job["type"] == "sweep":
        sweep.verdict(job, quiet=quiet)
    else:
        pipeline.verdict(job, quiet=quiet)
    return exit_code(job)


def show_parent(job: dict[str, Any]) -> None:
    """Print the fields of a sweep or a pipeline, and its children."""
    if job["type"] == "sweep":
        from allranks.cli.job.sweep import show_sweep  # lazy: one of the two

        show_sweep(job)
        return
    from allranks.cli.job.pipeline import show_pipeline  # lazy: one of the two

    show_pipeline(job)
