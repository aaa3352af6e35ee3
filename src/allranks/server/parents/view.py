"""A job with children as the API and ``--json`` show it."""

from __future__ import annotations

from typing import Any

from allranks.server.dependencies import Services
from allranks.server.jobs import view
from allranks.store.jobs.job_rows import COMMAND, JobRow


def job(row: JobRow, services: Services, *, summary: bool = False) -> dict[str, Any]:
    """A job of any type. ``summary``: of a sweep also what each parameter is worth, which may take
    a second."""
    shown = view.job(row, services.home, services.annotations.of(row.id))
    if row.type == "pipeline":
        from allranks.server.parents.pipeline.view import pipeline  # lazy: most jobs are none

        return {**shown, **pipeline(row, services)}
    best = services.records.answering(row.name)
    answer = {} if best is row else {"outputs": view.outputs(best)}
    reused = row.notes.get("reused")
    shown |= {**answer, "reused": reused, "not_reused": row.notes.get("not_reused")}
    if row.type == COMMAND:
        return shown
    from allranks.server.parents.sweep.view import sweep  # lazy: as above

    trials = services.records.get(reused) if reused else row
    return {**shown, **sweep(trials, services, summary=summary)}
