"""Continue an ended sweep or pipeline: run again what did not complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allranks.errors import Conflict, UsageError
from allranks.events import Kind
from allranks.server.dependencies import Services
from allranks.server.parents.sweep.create import total_trials
from allranks.server.submission.continuation import ended
from allranks.spec.sweep.job import SweepJob
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.jobs.job_rows import COMMAND, JobRow


def resume(
    row: JobRow, services: Services, data: Mapping[str, Any], *, fresh: bool = False
) -> JobRow:
    """The job, live again under its name. Its completed children stay, and so do trials that were
    stopped early; the others are replaced by new ones, or continued if they have children of their
    own. ``data`` may have ``limits`` that override a sweep's.

    Raises Conflict for a job that has not ended or has nothing left to run, UsageError and
    SpecError for unusable ``data``.
    """
    ended(row)
    if fresh or data.keys() - {"limits"} or not isinstance(data.get("limits", {}), Mapping):
        hint = f"submit it again, or continue it: allranks job restart {row.name}"
        raise UsageError(f"a {row.type} continues with its own code and jobs", hint=hint)
    if row.type == "pipeline":
        return _resume_pipeline(row, services, data)
    limits = {**row.spec["limits"], **data.get("limits", {})}
    spec = {**row.spec, "limits": limits}
    total = total_trials(SweepJob.parse(spec))
    children = services.children.of(row.name)
    replaced = [
        each.id
        for each in children
        if each.status is not JobStatus.COMPLETED and not each.notes.get("stopped")
    ]
    if not replaced and len(children) >= total:
        hint = f"raise its limit: allranks job restart {row.name} --trials {2 * total}"
        raise Conflict(f"all {total} trials of {row.name} have completed", hint=hint)
    return _reopen(row, services, spec, replaced)


def _resume_pipeline(row: JobRow, services: Services, data: Mapping[str, Any]) -> JobRow:
    if data.get("limits"):
        raise UsageError(f"{row.name} is not a sweep", hint="leave --trials and --concurrent out")
    replaced, children = [], services.children.of(row.name)
    for each in children:
        if each.status is JobStatus.COMPLETED:
            continue
        child = services.records.get(each.name)
        try:
            if child.type == COMMAND:
                replaced.append(each.id)
            elif each.status in TERMINAL:
                resume(child, services, {})
        except Conflict:
            replaced.append(each.id)  # nothing of it is left to run, and it has failed
    if row.record.status is JobStatus.COMPLETED:
        hint = "to run all of it again, submit it again with --force-rerun"
        raise Conflict(f"all steps of {row.name} have completed", hint=hint)
    return _reopen(row, services, row.spec, replaced)


def _reopen(
    row: JobRow, services: Services, spec: Mapping[str, Any], replaced: Sequence[int]
) -> JobRow:
    reopened = services.records.reopen(row, row.event(Kind.RESUMED), spec, replaced)
    services.loops.wake(row.name)
    return reopened
