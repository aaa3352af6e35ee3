"""What people may do to jobs. Each action is described first, with the command that does the
same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allranks.errors import AllranksError, Forbidden, NotFound, UsageError
from allranks.ui import render
from allranks.ui.api import Session, job_path


class Action(NamedTuple):
    """``command``: the words of the command line; ``what`` it does, in one sentence."""

    title: str
    command: str
    what: str
    button: str
    danger: bool = False


ACTIONS = {
    "cancel": Action(
        "Cancel", "job cancel", "All ranks are stopped. Outputs and logs stay.", "Cancel jobs", True
    ),
    "restart": Action(
        "Restart",
        "job restart",
        "Each job runs again. One that did not complete goes on from its state and outputs, and a "
        "sweep or pipeline with what did not complete. A completed one runs anew.",
        "Restart",
    ),
    "preempt": Action(
        "Preempt",
        "job preempt",
        "The job is stopped and started again as by a preemption of its cluster, to test it.",
        "Preempt",
        True,
    ),
    "tag": Action("Tag", "job tag", "Tags are set on the jobs.", "Set tags"),
    "archive": Action("Archive", "job archive", "The jobs are hidden from lists.", "Archive"),
    "restore": Action("Restore", "job restore", "Lists show the jobs again.", "Restore"),
    "delete": Action(
        "Delete",
        "job delete",
        "The jobs are deleted with their outputs, logs and own state. This cannot be undone.",
        "Delete for good",
        True,
    ),
    "register": Action(
        "Register a model",
        "model register",
        "The job's output becomes a version of a model.",
        "Register",
    ),
}


async def act(request: Request) -> Response:
    """Describe an action (GET), or do it (POST)."""
    name = request.path_params["action"]
    action = ACTIONS.get(name)
    if action is None:
        raise NotFound(f"there is no action {name!r}")
    if not request.state.person.may_change:
        raise Forbidden(f"{request.state.person.name} is a reader and may not change anything")
    if request.method == "GET":
        jobs = list(dict.fromkeys(request.query_params.getlist("job")))
        return _describe(request, name, action, jobs)
    form = await request.form()
    jobs = [str(each) for each in form.getlist("job")]
    values = {key: str(form.get(key, "")).strip() for key in ("text", "path", "choice", "set")}
    if not jobs:
        raise UsageError("no job is chosen", hint="tick jobs in the list")
    done: list[str] = []
    problems: list[tuple[str, AllranksError]] = []
    for job in jobs:
        try:
            done.append(await _do(request.state.session, name, job, values))
        except AllranksError as error:
            if len(jobs) == 1:
                raise
            problems.append((job, error))
    if problems:
        return render.page(request, "problems.html", action=action, problems=problems, done=done)
    place = f"/ui/jobs/{quote(done[0])}" if len(done) == 1 and name != "delete" else "/ui/"
    return RedirectResponse(place, 303)


def _describe(request: Request, name: str, action: Action, jobs: Sequence[str]) -> Response:
    words = ["allranks", *action.command.split()]
    if name == "register":
        words += ["NAME", "--job", *jobs, "--path", "outputs/…"]
    else:
        more = {"tag": ["KEY=VALUE"], "restart": ["--set", "inputs.lr=0.1"]}
        words += [*jobs, *more.get(name, [])]
    return render.page(
        request, "action.html", name=name, action=action, jobs=jobs, command=shlex.join(words)
    )


async def _do(session: Session, action: str, job: str, values: Mapping[str, str]) -> str:
    """Do it to one job with the values of the form; returns the job to look at next."""
    path = job_path(job)
    data: dict[str, Any] | None
    if action in ("cancel", "preempt"):
        data = {"by": "the web page"} if action == "preempt" else None
        await session.call("POST", f"{path}/{action}", data)
    elif action == "restart":
        changes = [line.strip() for line in values["set"].splitlines() if line.strip()]
        data = {"set": changes} if changes else None
        choice = {values["choice"]: "true"} if values["choice"] in ("resume", "fresh") else {}
        answer = await session.call("POST", f"{path}/restart", data, **choice)
        return str(answer.json()["name"])
    elif action in ("archive", "restore"):
        await session.call("PATCH", path, {"archived": action == "archive"})
    elif action == "tag":
        await session.call("PATCH", path, {"tags": _tags(values["text"])})
    elif action == "register":
        await session.call(
            "POST", "models", {"name": values["text"], "path": values["path"], "job": job}
        )
    else:
        await session.call("DELETE", path)
    return job


def _tags(text: str) -> dict[str, str]:
    """``a=1 b=2`` as tags. Raises UsageError."""
    try:
        pairs = [each.split("=", 1) for each in shlex.split(text)]
        tags = dict(pairs)
    except ValueError:
        tags = {}
    if not tags:
        raise UsageError(f"{text[:80]!r} has no tags", hint="write KEY=VALUE KEY=VALUE")
    return tags
