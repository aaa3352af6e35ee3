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
    if limits and row.type != "sweep":
        raise UsageError(f"{row.name} is not a sweep", hint="leave --trials and --concurrent out")
    children = "trials" if row.type == "sweep" else "steps"
    if resumes(row, resume=resume or (bool(limits) and not fresh), fresh=fresh):
        if overrides:
            hint = "run it anew with them (--fresh), or restart one of its jobs"
            raise UsageError(f"a {row.type} goes on as it is", where="--set", hint=hint)
        sentence = f"{row.name} goes on; {children} that completed stay"
        if not resume and not limits:
            sentence += " (`--fresh` runs it anew)"
        return Restarted(_resume(row, services, limits), True, sentence)
    made = _run_anew(row, services, by, overrides, limits, every_step=fresh)
    sentence = f"{made.name} runs anew"
    if not fresh:
        sentence += f", because {row.name} is {row.record.status}"
    if row.type == "pipeline":
        all_run = made.spec.get("settings", {}).get("force_rerun")
        sentence += "; all steps run" if all_run else "; unchanged steps are reused"
    elif not fresh:
        sentence += " (`--trials N` goes on to more trials)"
    return Restarted(made, False, sentence)


def _run_anew(
    row: JobRow,
    services: Services,
    by: str,
    overrides: Sequence[str],
    limits: Mapping[str, Any],
    *,
    every_step: bool,
) -> JobRow:
    """A new job of the same spec. ``every_step``: a pipeline reuses no results."""
    task, spec = row.plan.task, tagged_spec(row, services)
    override(spec, overrides)
    if row.type == "sweep":
        spec["limits"] = {**spec["limits"], **limits}
    elif every_step:
        spec["settings"] = {**(spec.get("settings") or {}), "force_rerun": True}
    known = services.environments.with_deleted()

    def submit_as(name: str) -> JobRow:
        named = Submission({**spec, "name": name}, task.code, task.in_place, task.base, task.tools)
        if row.type == "sweep":
            return create_sweep(named, services, by, known)
        return create_pipeline(named, services, by, known, component=services.components.find)

    return under_next_name(row.name, services, submit_as)


def _resume(row: JobRow, services: Services, limits: Mapping[str, Any]) -> JobRow:
    """The job, live again under its name. Its completed children stay, and so do trials that were
    stopped early; the others are replaced by new ones, or continued if they have children of their
    own. ``limits`` override a sweep's."""
    ended(row)
    if row.type == "pipeline":
        return _resume_pipeline(row, services)
    spec = {**row.spec, "limits": {**row.spec["limits"], **limits}}
    total = total_trials(SweepJob.parse(spec))
    children = services.children.of(row.name)
    replaced = [
        each.id
        for each in children
        if each.status is not JobStatus.COMPLETED and not each.notes.get("stopped")
    ]
    if not replaced and len(children) >= total:
        again = f"allranks job restart {row.name}"
        hint = f"raise its limit: {again} --trials {2 * total}; or run it anew: {again} --fresh"
        raise Conflict(f"all {total} trials of {row.name} have completed", hint=hint)
    return _reopen(row, services, spec, replaced)


def _resume_pipeline(row: JobRow, services: Services) -> JobRow:
    replaced, children = [], services.children.of(row.name)
    for each in children:
        if each.status is JobStatus.COMPLETED:
            continue
        child = services.records.get(each.name)
        try:
            if child.type == COMMAND:
                replaced.append(each.id)
            elif each.status in TERMINAL:
                _resume(child, services, {})
        except Conflict:
            replaced.append(each.id)  # nothing of it is left to run, and it has failed
    if row.record.status is JobStatus.COMPLETED:
        hint = f"to run it anew: allranks job restart {row.name}; with --fresh all steps run"
        raise Conflict(f"all steps of {row.name} have completed", hint=hint)
    return _reopen(row, services, row.spec, replaced)


def _reopen(
    row: JobRow, services: Services, spec: Mapping[str, Any], replaced: Sequence[int]
) -> JobRow:
    reopened = services.records.reopen(row, row.event(Kind.RESUMED), spec, replaced)
    services.loops.wake(row.name)
    return reopened
