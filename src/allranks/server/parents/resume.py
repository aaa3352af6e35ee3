"""Continue an ended sweep: run again what did not complete, and raise its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.errors import Conflict, SpecError, UsageError
from allranks.events import Kind
from allranks.server.dependencies import Services
from allranks.server.parents.create import total_trials
from allranks.server.submission.continuation import ended
from allranks.spec.sweep.job import SweepJob
from allranks.statuses import JobStatus
from allranks.store.job_rows import JobRow


def resume(
    row: JobRow, services: Services, data: Mapping[str, Any], *, fresh: bool = False
) -> JobRow:
    """The sweep, live again under its name. Its completed and early-stopped trials stay; the others
    are replaced by new ones. ``data`` may have ``limits`` that override the sweep's.

    Raises Conflict for a sweep that has not ended or has nothing left to run, UsageError and
    SpecError for unusable ``data``.
    """
    ended(row)
    if fresh or data.keys() - {"limits"} or not isinstance(data.get("limits", {}), Mapping):
        hint = f"submit it again, or continue it: allranks job restart {row.name}"
        raise UsageError("a sweep continues with its own code and trials", hint=hint)
    limits = {**row.spec["limits"], **data.get("limits", {})}
    spec = {**row.spec, "limits": limits}
    try:
        total = total_trials(SweepJob.parse(spec))
    except SpecError as error:
        raise SpecError(error.problems) from None
    children = services.children.of(row.name)
    replaced = [
        each.id
        for each in children
        if each.status is not JobStatus.COMPLETED and not each.notes.get("stopped")
    ]
    if not replaced and len(children) >= total:
        hint = f"raise its limit: allranks job restart {row.name} --trials {2 * total}"
        raise Conflict(f"all {total} trials of {row.name} have completed", hint=hint)
    reopened = services.records.reopen(row, row.event(Kind.RESUMED), spec, replaced)
    services.loops.wake(row.name)
    return reopened
