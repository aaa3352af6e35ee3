"""A job as the API and ``--json`` show it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks import clock, disk_space
from allranks.core.distributions.topology import log_name, ranks, together, world
from allranks.core.job.command_flags import command_flags
from allranks.core.job.continuation import Carried
from allranks.core.job.list_filters import CREATED_BY
from allranks.core.lifecycle import decide
from allranks.core.lifecycle import pending_reason as plan_standing
from allranks.core.lifecycle.decide import Node
from allranks.core.packing import pack
from allranks.core.plan import Interpreter, Task
from allranks.masking import all_without_credentials, without_credentials
from allranks.server.auth.roles import OWNER
from allranks.server.jobs.hosts import with_host
from allranks.server.timestamps import iso_time
from allranks.settings import Home
from allranks.statuses import TERMINAL, Purpose
from allranks.store.jobs.annotations import Annotation
from allranks.store.jobs.event_rows import StoredEvent
from allranks.store.jobs.job_rows import Damaged, JobRow

if TYPE_CHECKING:
    from allranks.api import jobs as api


def status_reason(row: JobRow, home: Home) -> str:
    """Why the job is not making progress; empty if it is. Looks at the home's disk, so it may
    block."""
    reason = plan_standing.pending_reason(row.record, clock.now(), together(row.plan.task))
    reasons = [with_host(row, reason)]
    if row.record.status not in TERMINAL and disk_space.is_full(home.root):
        reasons.append(
            f"the disk of the server's home {home.root} is full, so what ranks print and write may "
            "be lost: free some space"
        )
    return "; ".join(filter(None, reasons))


def signed(spec: Mapping[str, Any], by: str) -> dict[str, Any]:
    """The spec with its submitter ``by``, overriding what the spec says."""
    signed_spec = dict(spec)
    kept = dict(spec.get("properties") or {})
    previous = kept.pop(CREATED_BY, None)
    if by != OWNER.name:
        kept[CREATED_BY] = by
    if previous is not None or by != OWNER.name:
        signed_spec["properties"] = kept
    return signed_spec


def submitter(spec: Mapping[str, Any]) -> str:
    """Who submitted the job; by default the home's owner."""
    return str((spec.get("properties") or {}).get(CREATED_BY, OWNER.name))


def job(row: JobRow, home: Home, note: Annotation) -> api.JobRecord:
    """A job with all details; times in ISO 8601 with time zone."""
    spec, record, task = row.spec, row.record, row.plan.task
    return {
        **brief(row),
        "status_reason": status_reason(row, home) or None,
        "leftovers": record.leftovers or None,
        "display_name": note.display_name or row.name,
        "description": spec.get("description"),
        "tags": dict(note.tags),
        "archived_at": iso_time(note.archived_at),
        "environment": _with_pythons(environment(task), record.nodes),
        "command": without_credentials(task.command),
        "distribution": task.distribution,
        "gpus_per_node": task.gpus,
        "instance_type": (spec.get("resources") or {}).get("instance_type"),
        "code": task.code,
        "launches": record.launch,
        "cluster_job": (record.ref or None) if row.plan.server_address else None,
        "parameters": parameters(row, note),
        "ranks_ended_at": iso_time(_ranks_ended_at(row)),
        "folder": str(home.jobs / row.name),
        "outputs": outputs(row),
        "ranks": [
            {"rank": rank.rank, "node": rank.node, "role": rank.role} for rank in ranks(task)
        ],
        "node_states": [
            {
                "node": index,
                "state": str(node.state),
                "address": node.place and node.place.address,
                "host": node.place and node.place.host,
                "interface": node.place and node.place.interface,
                "cpus": node.place and node.place.cpus,
                "rdma": node.place and node.place.rdma,
            }
            for index, node in enumerate(record.nodes)
        ],
        "spec": all_without_credentials(spec),
    }


def parameters(row: JobRow, note: Annotation) -> dict[str, Any]:
    """The flags of its command, what it logged, and what its sweep chose, by name."""
    flags = command_flags(row.plan.task.command).parameters
    return {**flags, **note.parameters, **row.notes.get("parameters", {})}


def inputs(row: JobRow) -> dict[str, Any]:
    """The values of a job's inputs by name, of data their paths."""
    inputs = (row.spec.get("inputs") or {}).items()
    paths = {name: each.get("path") if isinstance(each, Mapping) else each for name, each in inputs}
    return dict(all_without_credentials(paths))


def outputs(row: JobRow) -> dict[str, str]:
    """The places of a job's outputs by name."""
    return {
        output.name: without_credentials(output.uri or output.path)
        for output in row.plan.task.outputs
    }


def _parent(row: JobRow) -> str | None:
    """The job that submitted this one, or that its submitter named."""
    return row.parent or row.spec.get("parent_job_name")


def _ranks_ended_at(row: JobRow) -> float | None:
    """When the ranks of the last attempt ended; uploads and clean-up follow."""
    job = row.record
    for_good = job.then is not None and job.then.purpose is Purpose.FINISH
    if not for_good or row.started_at is None or job.closing_at is None:
        return None
    return job.closing_at - decide.unrecorded(job)


def brief(row: JobRow) -> api.JobSummary:
    """One line of a list."""
    return {
        "name": row.name,
        "status": str(plan_standing.shown_status(row.record)),
        "type": row.type,
        "experiment_name": row.experiment,
        "display_name": row.spec.get("display_name") or row.name,
        "compute": row.plan.compute,
        "nodes": row.plan.task.nodes,
        "processes": world(row.plan.task),
        "attempts": row.record.attempt,
        "exit_code": row.exit_code,
        "error": row.error,
        "parent_job_name": _parent(row),
        "created_by": submitter(row.spec),
        "created_at": iso_time(row.created_at),
        "started_at": iso_time(row.started_at),
        "ended_at": iso_time(row.ended_at),
    }


def listed(
    row: JobRow,
    note: Annotation | None,
    values: Mapping[int, Mapping[str, float | str]] | None,
    children: Mapping[str, int] | None = None,
    total_children: int = 0,
) -> api.ListedJob:
    """One line of a list with all columns; ``values`` are metrics by job id, if requested,
    ``children`` the numbers of its children by status, of ``total_children``."""
    note = note or Annotation(row.name)
    end = row.ended_at if row.record.status in TERMINAL else clock.now()
    took = None if row.started_at is None or end is None else max(0.0, end - row.started_at)
    listed: api.ListedJob = {
        **brief(row),
        "display_name": note.display_name,
        "tags": dict(note.tags),
        "archived_at": iso_time(note.archived_at),
        "duration": took,
        "children": dict(children or {}),
        "total_children": total_children,
        "inputs": inputs(row),
    }
    if values is not None:
        listed["metrics"] = dict(values.get(row.id, {}))
        listed["parameters"] = parameters(row, note)
    return listed


def carried(copies: Carried | None) -> api.CarriedAnswer | None:
    """The files that a job got from the one it continues."""
    if copies is None:
        return None
    now = time.time()
    return {
        "of": copies.of,
        "files": copies.files,
        "size": copies.size,
        "newest": [
            {
                "path": file.path,
                "size": file.size,
                "modified": file.modified,
                "age": max(0.0, now - file.modified),
            }
            for file in copies.newest
        ],
        "notes": [*copies.notes],
        "message": copies.sentence(now),
    }


def damaged(row: Damaged) -> api.DamagedJob:
    """One line of a list for a job whose record cannot be read."""
    return {
        "name": row.name,
        "status": "Damaged",
        "type": "command",
        "experiment_name": "",
        "display_name": row.name,
        "tags": {},
        "inputs": {},
        "metrics": {},
        "nodes": 0,
        "processes": 0,
        "attempts": 0,
        "compute": None,
        "exit_code": None,
        "error": None,
        "started_at": None,
        "ended_at": None,
        "archived_at": None,
        "duration": None,
        "created_by": OWNER.name,
        "created_at": iso_time(row.created_at),
        "damaged": row.reason,
    }


def event(stored: StoredEvent) -> api.EventAnswer:
    inner = stored.event
    return {
        "id": stored.id,
        "at": iso_time(inner.at),
        "kind": str(inner.kind),
        "launch": inner.launch,
        "attempt": inner.attempt,
        "node": inner.node,
        "rank": inner.rank,
        "data": pack(inner.data),
    }


def log_files(row: JobRow) -> list[tuple[int, int, int, str]]:
    """(attempt, rank, node, file) of every rank of every attempt so far."""
    task = row.plan.task
    return [
        (attempt, rank.rank, rank.node, log_name(rank.rank, world(task)))
        for attempt in range(1, row.record.attempt + 1)
        for rank in ranks(task)
    ]


def environment(task: Task) -> api.EnvironmentOfJob:
    """The ranks' environment: an image, a virtual environment, or the submitter's Python.
    ``asked_for`` is the name that the job gave, if it was mapped to another environment."""
    shown = _environment(task)
    requested = without_credentials(task.environment_asked)
    if requested:
        shown["asked_for"] = requested
    return shown


def _with_pythons(shown: api.EnvironmentOfJob, nodes: Sequence[Node]) -> api.EnvironmentOfJob:
    """With the Pythons that nodes have reported."""
    by_python: dict[Interpreter, list[int]] = {}
    for number, node in enumerate(nodes):
        if node.place is not None and node.place.python is not None:
            by_python.setdefault(node.place.python, []).append(number)
    if by_python:
        shown["pythons"] = [
            {
                "path": python.path,
                "version": python.version,
                "packages": python.packages,
                "nodes": numbers,
            }
            for python, numbers in by_python.items()
        ]
    return shown


def _environment(task: Task) -> api.EnvironmentOfJob:
    if task.container is None and task.recipe is None:
        return {"name": "current"}
    is_current = task.current is not None
    shown: api.EnvironmentOfJob = {"name": "current" if is_current else task.environment or None}
    if task.container is not None:
        shown["image"] = task.container.image or task.container.context
    if task.recipe is not None:
        shown["python"] = task.recipe.python or None
        shown["requirements"] = all_without_credentials(task.recipe.requirements)
        shown["notes"] = list(task.recipe.notes)
    return shown
