"""Delete one job, unless another job or a data asset needs its outputs."""

from __future__ import annotations

from collections.abc import Set

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
    children = _children(row, services)
    if children:  # before the first is gone; below of each again, when no job can be created
        _require_unused(_family(row.name, services), row.name, services)
    size = sum(delete(services.records.read(child), services) for child in reversed(children))
    path = services.home.jobs / row.name
    # Locked: no job that reads its outputs may be created meanwhile.
    with services.admission_lock:
        _require_unused({row.name}, row.name, services)
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


def _require_unused(names: Set[str], name: str, services: Services) -> None:
    """Refuse if outputs of the jobs ``names``, which go with the one of that ``name``, are needed.

    A pipeline or sweep stands for its jobs: without them it would be a record of nothing.
    """
    jobs = [inventory.job(services.home, use) for use in services.records.uses()]
    if others := [*dict.fromkeys(_top(reader, services) for reader in readers(names, jobs))]:
        hint = f"delete them together: allranks job delete {' '.join([*others, name])}"
        raise Conflict(f"outputs of {name} are needed by {', '.join(others)}", hint=hint)
    for version in services.data.versions():
        if names & inventory.behind(services.home, [str(version.spec.get("path") or "")]):
            asset = f"{version.name}:{version.version}"
            hint = f"delete it first: allranks data delete {asset}"
            raise Conflict(f"the data asset {asset} is in the outputs of {name}", hint=hint)


def _family(name: str, services: Services) -> set[str]:
    """A job, its children, theirs, and so on."""
    return {name}.union(*(_family(each, services) for each in services.children.names(name)))


def _top(name: str, services: Services) -> str:
    """The job of the user that a job belongs to, or itself."""
    row = services.records.read(name)
    parent = row.parent if isinstance(row, JobRow) else None
    return name if parent is None or not services.records.has(parent) else _top(parent, services)
