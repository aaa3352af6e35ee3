"""Delete one job, unless another job or a data asset needs its outputs."""

from __future__ import annotations

from allranks import folder_trees
from allranks.core.data.garbage_rules import readers
from allranks.errors import Conflict
from allranks.server.dependencies import Services
from allranks.server.storage import inventory
from allranks.server.storage.garbage_collection import put_away
from allranks.statuses import TERMINAL
from allranks.store.jobs.job_rows import COMMAND, Damaged, JobRow


def delete(row: JobRow | Damaged, services: Services) -> int:
    """Remove the job's record, outputs, logs and own state; returns the freed bytes. Models
    registered from it have their own files and stay; `gc` removes unreferenced code. A job with a
    damaged record is deleted whatever its status.

    Of a sweep or a pipeline, its jobs are deleted first.

    Raises Conflict for a job that has not ended, whose parent has not, or whose outputs a job or a
    data asset needs.
    """
    if isinstance(row, JobRow) and row.record.status not in TERMINAL:
        hint = f"cancel it: allranks job cancel {row.name}, then: allranks job wait {row.name}"
        raise Conflict(f"{row.name} is {row.record.status} and has not ended", hint=hint)
    size = sum(
        delete(services.records.read(each), services) for each in reversed(_children(row, services))
    )
    path = services.home.jobs / row.name
    # Locked: no job that reads its outputs may be created meanwhile.
    with services.admission_lock:
        _require_unused(row, services)
        size += inventory.size(path)
        away = put_away(path) if path.exists() else None
        services.records.delete_job(row.name, damaged=isinstance(row, Damaged))
        if isinstance(row, Damaged) or not row.plan.task.state:
            services.states.drop(row.name)
    if away is not None:
        folder_trees.remove(away)
    return size


def _children(row: JobRow | Damaged, services: Services) -> list[str]:
    """The names of a job's children. Raises Conflict for a child of a live parent."""
    if isinstance(row, Damaged):
        return []
    if row.parent is not None and services.records.has(row.parent):
        parent = services.records.get(row.parent)
        if parent.record.status not in TERMINAL:
            hint = f"wait for it: allranks job wait {parent.name}"
            raise Conflict(f"{row.name} belongs to {parent.name}, which has not ended", hint=hint)
    return [] if row.type == COMMAND else services.children.names(row.name)


def _require_unused(row: JobRow | Damaged, services: Services) -> None:
    jobs = [inventory.job(services.home, each) for each in services.records.uses()]
    if others := readers(row.name, jobs):
        hint = f"delete both: allranks job delete {others[0]} {row.name}"
        raise Conflict(f"the job {others[0]} has outputs of {row.name} as inputs", hint=hint)
    for version in services.data.versions():
        if row.name in inventory.behind(services.home, [str(version.spec.get("path") or "")]):
            asset = f"{version.name}:{version.version}"
            hint = f"delete it first: allranks data delete {asset}"
            raise Conflict(f"the data asset {asset} is in the outputs of {row.name}", hint=hint)
