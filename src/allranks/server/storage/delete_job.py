"""Deleting one job for good, unless something else needs what it left."""

from __future__ import annotations

from allranks.errors import Conflict
from allranks.plan.data.retention import readers
from allranks.server.dependencies import Services
from allranks.server.storage import inventory
from allranks.server.storage.garbage_collection import put_away, remove_folder
from allranks.statuses import TERMINAL
from allranks.store.job_rows import Damaged, JobRow


def delete(row: JobRow | Damaged, with_: Services) -> int:
    """Remove the job's record, outputs, logs and own state; the bytes that are free then. Models
    registered from it have their own files and stay; `gc` removes code that no job has. A job whose
    record is damaged cannot go on, and goes whatever its status.

    Raises Conflict for a job that has not ended, or whose outputs a job or a data asset needs.
    """
    if isinstance(row, JobRow) and row.record.status not in TERMINAL:
        hint = f"end it first: allranks job cancel {row.name}, then allranks job wait {row.name}"
        raise Conflict(f"{row.name} is {row.record.status} and has not ended", hint=hint)
    path = with_.home.jobs / row.name
    # No job comes in meanwhile that would read it.
    with with_.coming:
        _hold_to_unused(row, with_)
        size = inventory.size(path)
        away = put_away(path) if path.exists() else None
        with_.records.delete_job(row.name, damaged=isinstance(row, Damaged))
        if isinstance(row, Damaged) or not row.plan.task.state:
            with_.states.drop(row.name)
    if away is not None:
        remove_folder(away)
    return size


def _hold_to_unused(row: JobRow | Damaged, with_: Services) -> None:
    jobs = [inventory.job(with_.home, each) for each in with_.records.uses()]
    if others := readers(row.name, jobs):
        hint = f"delete both: allranks job delete {others[0]} {row.name}"
        raise Conflict(f"the job {others[0]} has outputs of {row.name} as inputs", hint=hint)
    for each in with_.data.versions():
        if row.name in inventory.behind(with_.home, [str(each.spec.get("path") or "")]):
            asset = f"{each.name}:{each.version}"
            hint = f"delete that first: allranks data delete {asset}"
            raise Conflict(f"the data {asset} lies in the outputs of {row.name}", hint=hint)
