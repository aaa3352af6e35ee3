"""Show a job with children, by its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.cli.job.children import ChildrenViewer


def viewer(job: Mapping[str, Any], **options: bool) -> ChildrenViewer:
    """The viewer of a sweep or a pipeline."""
    if job["type"] == "sweep":
        from allranks.cli.job.sweep import SweepViewer  # lazy: one of the two

        return SweepViewer(job["name"], **options)
    from allranks.cli.job.pipeline import PipelineViewer  # lazy: one of the two

    return PipelineViewer(job["name"], **options)


def verdict(job: dict[str, Any], *, quiet: bool = False) -> int:
    """Print how a sweep or a pipeline ended. Returns 0 if it completed, else 1."""
    from allranks.cli.job import pipeline, sweep  # lazy: one of the two

    if job["type"] == "sweep":
        return sweep.verdict(job, quiet=quiet)
    return pipeline.verdict(job, quiet=quiet)


def show_parent(job: dict[str, Any]) -> None:
    """Print the fields of a sweep or a pipeline, and its children."""
    if job["type"] == "sweep":
        from allranks.cli.job.sweep import show_sweep  # lazy: one of the two

        show_sweep(job)
        return
    from allranks.cli.job.pipeline import show_pipeline  # lazy: one of the two

    show_pipeline(job)
