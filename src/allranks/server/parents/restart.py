"""Restart an ended sweep or pipeline: go on with what did not complete, or run it anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allranks.errors import Conflict, UsageError
from allranks.events import Kind
from allranks.server.dependencies import Services
from allranks.server.parents.pipeline.create import create_pipeline
from allranks.server.parents.sweep.create import create_sweep, total_trials
from allranks.server.submission.continuation import ended
from allranks.server.submission.restart import (
    Restarted,
    override,
    resumes,
    tagged_spec,
    under_next_name,
)
from allranks.server.submission.submit import Submission
from allranks.spec.sweep.job import SweepJob
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.jobs.children import ChildState
from allranks.store.jobs.job_rows import COMMAND, JobRow


def restart_parent(
    row: JobRow,
    services: Services,
    by: str,
    data: Any,
    *,
    resume: bool = False,
    fresh: bool = False,
    overrides: Sequence[str] = (),
) -> Restarted:
    """A job that did not complete goes on, and so does a sweep with more ``limits`` in ``data``; a
    completed one runs anew. ``resume`` and ``fresh`` override this. ``overrides``: see ``restart``.

    Raises Conflict for a job that has not ended or has nothing left to run, UsageError and
    SpecError for unusable ``data``.
    """
    valid = isinstance(data, Mapping) and data.keys() <= {"limits"}
    limits = data.get("limits", {}) if valid else None
    if not isinstance(limits, Mapping):
        hint = f"submit it again, or restart it as it is: allranks job restart {row.name}"
        raise UsageError(f"a {row.type} is restarted with its own code", hint=hint)
    if resumes(row, resume=resume or (bool(limits) and not fresh), fresh=fresh):
        if overrides:
            hint = "run it anew with them (--fresh), or restart one of its jobs"
            raise UsageError(f"a {row.type} goes on as it is", where="--set", hint=hint)
        children = "trials" if row.type == "sweep" else "steps"
        other = "" if resume or limits else " (`--fresh` runs it anew)"
        sentence = f"{row.name} goes on; {children} that completed stay{other}"
        return Restarted(_resume(row, services, limits), True, sentence)
    spec = tagged_spec(row, services)
    notes = override(spec, overrides)
    if row.type == "sweep":
        spec["limits"] = {**spec["limits"], **limits}
    elif fresh:
        spec["settings"] = {**(spec.get("settings") or {}), "force_rerun": True}
    made = _run_anew(row, services, by, spec)
    because = "" if fresh else f", because {row.name} is {row.record.status}"
    more = "" if fresh else " (`--trials N` goes on to more trials)"
    if row.type == "pipeline":
        all_run = made.spec.get("settings", {}).get("force_rerun")
        more = "; all steps run" if all_run else "; unchanged steps are reused"
    return Restarted(made, False, f"{made.name} runs anew{because}{more}", notes=notes)


def _run_anew(row: JobRow, services: Services, by: str, spec: Mapping[str, Any]) -> JobRow:
    """A new job of the ``spec``, with the code of the ended one."""
    task, envs = row.plan.task, services.environments.with_deleted()

    def submit_as(name: str) -> JobRow:
        named = Submission(
            {**spec, "name": name},
            task.code,
            task.in_place,
            task.base,
            task.tools,
            python=task.current,
        )
        if row.type == "sweep":
            return create_sweep(named, services, by, envs)
        return create_pipeline(named, services, by, envs)

    return under_next_name(row.name, services, submit_as)


def _resume(row: JobRow, services: Services, limits: Mapping[str, Any]) -> JobRow:
    """The job, live again under its name. Its completed children stay, and so do trials that were
    stopped early; the others are replaced by new ones, or continued if they have children of their
    own. ``limits`` override a sweep's."""
    ended(row)
    again, spec = f"allranks job restart {row.name}", row.spec
    if row.type == "pipeline" and row.record.status is JobStatus.COMPLETED:
        hint = f"to run it anew: {again}; with --fresh all steps run"
        raise Conflict(f"all steps of {row.name} have completed", hint=hint)
    children = services.children.of(row.name)
    replaced = {child.id: child.number for child in children if _is_replaced(child, services)}
    if row.type == "sweep":
        spec = {**spec, "limits": {**spec["limits"], **limits}}
        total = total_trials(SweepJob.parse(spec))
        if not replaced and len(children) >= total:
            hint = f"raise its limit: {again} --trials {2 * total}; or run it anew: {again} --fresh"
            raise Conflict(f"all {total} trials of {row.name} have completed", hint=hint)
    reopened = services.records.reopen(row, row.event(Kind.RESUMED), spec, replaced)
    services.loops.wake(row.name)
    return reopened


def _is_replaced(child: ChildState, services: Services) -> bool:
    """Whether a new job takes the place of a child. One that has children goes on itself."""
    if child.status is JobStatus.COMPLETED or child.notes.get("stopped"):
        return False
    row = services.records.get(child.name)
    if row.type == COMMAND:
        return True
    try:
        if child.status in TERMINAL:
            _resume(row, services, {})
    except Conflict:
        return True  # nothing of it is left to run, and it has failed
    return False
