"""The services of a job: how they go, by what its nodes have reported."""

from __future__ import annotations

from shutil import which
from typing import TYPE_CHECKING
from urllib.parse import quote

from allranks.core.job.services import VS_CODES
from allranks.core.plan import ServiceTask, Task
from allranks.errors import Conflict, NotFound, UsageError
from allranks.events import SERVICE
from allranks.statuses import TERMINAL, NodeState
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.jobs import ServiceAnswer

_OVER = ("Completed", "Failed")


def services_of(row: JobRow, records: Records, *, with_pages: bool) -> list[ServiceAnswer]:
    """Each service on each of its nodes."""
    tasks = row.plan.task.services
    if not tasks:
        return []
    reported: dict[tuple[str, int | None], tuple[str, str]] = {}
    for event in records.notes(row, SERVICE):
        name, state = str(event.data.get("service")), str(event.data.get("state"))
        reported[name, event.node] = (state, str(event.data.get("message")))
    return [
        _answer(row, task, node, reported.get((task.name, node)), with_pages=with_pages)
        for task in tasks
        for node in (range(row.plan.task.nodes) if task.everywhere else (0,))
    ]


def missing_program(task: Task) -> str:
    """A note on a VS Code that cannot start; empty if it can, for a task whose ranks have the
    programs of this machine."""
    names = [service.name for service in task.services if service.type == "vs_code"]
    path = task.variables.get("PATH") or task.base.get("PATH")
    if not names or task.container or task.recipe or any(which(one, path=path) for one in VS_CODES):
        return ""
    return f"{', '.join(names)} cannot start: the ranks' PATH has no {' and no '.join(VS_CODES)}"


def _answer(
    row: JobRow,
    task: ServiceTask,
    node: int,
    reported: tuple[str, str] | None,
    *,
    with_pages: bool,
) -> ServiceAnswer:
    is_over = row.record.status in TERMINAL
    runs = not is_over and row.record.nodes[node].state is NodeState.RUNNING
    state, message = reported or ("Waiting", "")
    if not task.is_started:
        state = "Running" if task.type == "ssh" and not is_over else "Unchecked"
    if not runs and state not in _OVER:
        state = "Ended" if is_over else "Waiting"
    if state == "Unchecked":
        message = f"a program of the job listens on port {task.port}"
    is_open = runs and state in ("Running", "Unchecked") and task.type != "ssh"
    job, name = quote(row.name, safe=""), quote(task.name, safe="")
    return {
        "name": task.name,
        "type": task.type,
        "node": node,
        "state": state,
        "message": message,
        "port": task.port,
        "page": f"/ui/jobs/{job}/service?name={name}&node={node}"
        if is_open and with_pages
        else None,
    }


def require_service(row: JobRow, records: Records, name: str, node: int) -> None:
    """Raise NotFound, UsageError for one that no connection leads to, or Conflict for one that has
    failed."""
    tasks = {task.name: task for task in row.plan.task.services}
    if name not in tasks:
        hint = f"it has {', '.join(tasks)}" if tasks else "add `services` to its job file"
        raise NotFound(f"{row.name} has no service {name!r}", hint=hint)
    if tasks[name].type == "ssh":
        hint = f"allranks job ssh-config {row.name}"
        raise UsageError(f"{name} has no port: ssh goes another way", hint=hint)
    if node and not tasks[name].everywhere:
        hint = "use node 0, or `nodes: all` in the job file"
        raise NotFound(f"{name} does not run on node {node}", hint=hint)
    for each in services_of(row, records, with_pages=False):
        if (each["name"], each["node"], each["state"]) == (name, node, "Failed"):
            hint = (
                f"change it in the job file, and start the job again: allranks job show {row.name}"
            )
            raise Conflict(f"the service {name} has failed: {each['message']}", hint=hint)
