"""A job with children as the API and ``--json`` show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allranks.server.dependencies import Services
from allranks.server.jobs import view
from allranks.store.jobs.annotations import noted
from allranks.store.jobs.job_rows import COMMAND, JobRow

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer, JobRecord


def created(row: JobRow, services: Services) -> JobAnswer:
    """A command job that was created just now: its annotation is still that of its spec."""
    return _with_outputs_and_reuse(
        row, view.job(row, services.home, noted(row.name, row.spec)), services
    )


def job(row: JobRow, services: Services, *, summary: bool = False) -> JobAnswer:
    """A job of any type. ``summary``: of a sweep also what each parameter is worth, which may take
    a second."""
    record = view.job(row, services.home, services.annotations.of(row.id))
    if row.type == "pipeline":
        from allranks.server.parents.pipeline.view import outputs, pipeline  # lazy: most are none

        return {**record, **pipeline(row, services), "outputs": outputs(row, services)}
    shown = _with_outputs_and_reuse(row, record, services)
    if row.type == COMMAND:
        return shown
    from allranks.server.parents.sweep.view import sweep  # lazy: as above

    reused = shown["reused"]
    trials = services.records.get(reused) if reused else row
    return {**shown, **sweep(trials, services, summary=summary)}


def total_children(row: JobRow) -> int:
    """How many trials or steps a job has, those that have not started included."""
    if row.type == "pipeline":
        # A step of another pipeline may have them in its component.
        return len((row.spec if "jobs" in row.spec else row.spec["component"])["jobs"])
    if row.type == COMMAND:
        return 0
    from allranks.server.parents.sweep.create import total_trials  # lazy: as above
    from allranks.spec.sweep.job import SweepJob  # lazy: as above

    return total_trials(SweepJob.parse(row.spec))


def _with_outputs_and_reuse(row: JobRow, record: JobRecord, services: Services) -> JobAnswer:
    """With the outputs of the job that answers for it, and whether it reused a result."""
    answering = services.records.answering(row.name)
    shown: JobAnswer = {
        **record,
        "reused": row.notes.get("reused"),
        "not_reused": row.notes.get("not_reused"),
    }
    if answering is not row:
        shown["outputs"] = view.outputs(answering)
    return shown
