"""Deleting one job for good, unless something else needs what it left."""

from __future__ import annotations

from allranks.errors import Conflict
from allranks.plan.retention import readers
from allranks.server import holdings
from allranks.server.clearing import put_away, remove_folder
from allranks.server.services import Services
from allranks.states import TERMINAL
from allranks.store.records import JobRow


def delete(row: JobRow, with_: Services) -> int:
    """Remove the job's record, outputs, logs and own state; the bytes that are free then. Models
    registered from it have their own files and stay; `gc` removes code that no job has.

    Raises Conflict for a job that has not ended, or whose outputs a job or a data asset needs.
    """
    if row.record.status not in TERMINAL:
        hint = f"end it first: allranks job cancel {row.name}, then allranks job wait {row.name}"
        raise Conflict(f"{row.name} is {row.record.status} and has not ended", hint=hint)
    path = with_.home.jobs / row.name
    # No job comes in meanwhile that would read it.
    with with_.coming:
        _hold_to_unused(row, with_)
        size = holdings.size(path)
        away = put_away(path) if path.exists() else None
        with_.records.forget(row.name)
        if not row.plan.task.state:
            with_.states.drop(row.name)
    if away is not None:
        remove_folder(away)
    return size


def _hold_to_unused(row: JobRow, with_: Services) -> None:
    jobs = [holdings.job(with_.home, each) for each in with_.records.uses()]
    if others := readers(row.name, jobs):
        hint = f"delete both: allranks job delete {others[0]} {row.name}"
        raise Conflict(f"the job {others[0]} has outputs of {row.name} as inputs", hint=hint)
    for each in with_.data.versions():
        if row.name in holdings.behind(with_.home, [str(each.spec.get("path") or "")]):
            asset = f"{each.name}:{each.version}"
            hint = f"delete that first: allranks data delete {asset}"
            raise Conflict(f"the data {asset} lies in the outputs of {row.name}", hint=hint)
