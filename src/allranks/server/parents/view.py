"""A job with children as the API and ``--json`` show it."""

from __future__ import annotations

from typing import Any

from allranks.server.dependencies import Services
from allranks.server.jobs import view
from allranks.store.jobs.annotations import noted
from allranks.store.jobs.job_rows import COMMAND, JobRow


def created(row: JobRow, services: Services) -> dict[str, Any]:
    """A command job that was created just now: its annotation is still that of its spec."""
    return _with_answer(row, view.job(row, services.home, noted(row.name, row.spec)), services)


def job(row: JobRow, services: Services, *, summary: bool = False) -> dict[str, Any]:
    """A job of any type. ``summary``: of a sweep also what each parameter is worth, which may take
    a second."""
    shown = view.job(row, services.home, services.annotations.of(row.id))
    if row.type == "pipeline":
        from allranks.server.parents.pipeline.view import pipeline  # lazy: most jobs are none

        return {**shown, **pipeline(row, services)}
    shown = _with_answer(row, shown, services)
    if row.type == COMMAND:
        return shown
    from allranks.server.parents.sweep.view import sweep  # lazy: as above

    reused = shown["reused"]
    trials = services.records.get(reused) if reused else row
    return {**shown, **sweep(trials, services, summary=summary)}


def _with_answer(row: JobRow, shown: dict[str, Any], services: Services) -> dict[str, Any]:
    """With the outputs of the job that answers for it, and whether it reused a result."""
    best = services.records.answering(row.name)
    answer = {} if best is row else {"outputs": view.outputs(best)}
    notes = {name: row.notes.get(name) for name in ("reused", "not_reused")}
    return {**shown, **answer, **notes}
