"""What people may do to jobs. Each action is described first, with the command that does the
same."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allranks.api import routes
from allranks.core.job.marks import NOTE, STAR, without_marks
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.ui import render
from allranks.ui.api import Session
from allranks.ui.messages import leave
from allranks.ui.pages.forms import Field, changes, fields, paths


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
    "release": Action(
        "Release", "job release", "The jobs that are held after a failure end.", "Release"
    ),
    "tag": Action("Tag", "job tag", "Tags are set on the jobs.", "Set tags"),
    "note": Action("Note", "job tag", "A note in Markdown, on the job's page.", "Save"),
    "star": Action("Star", "job tag", "Starred jobs come first in the list.", "Star"),
    "unstar": Action("Unstar", "job tag", "The jobs are listed as others.", "Unstar"),
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
    request.state.person.require_member()
    if request.method == "GET":
        jobs = list(dict.fromkeys(request.query_params.getlist("job")))
        return await _describe(request, name, action, jobs)
    form = await request.form()
    jobs = [str(each) for each in form.getlist("job")]
    values = {key: str(value) for key, value in form.items()}
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
    place = ""
    if len(done) == 1 and name != "delete":
        place = f"{'assets/models' if name == 'register' else 'jobs'}/{quote(done[0], safe=':')}"
    answer = RedirectResponse(f"/ui/{place}", 303)
    leave(answer, name, done)
    return answer


async def _describe(request: Request, name: str, action: Action, jobs: Sequence[str]) -> Response:
    """The form, with the values that a single job has now."""
    session: Session = request.state.session
    words = ["allranks", *action.command.split()]
    if name == "register":
        words += ["NAME", "--job", *jobs, "--path", "outputs/…"]
    else:
        more = {
            "tag": ["KEY=VALUE"],
            "note": [f"{NOTE}=…"],
            "star": [f"{STAR}=yes"],
            "unstar": ["--remove", STAR],
        }
        words += [*jobs, *more.get(name, [])]
    values: dict[str, Any] = {}
    if len(jobs) == 1:
        job = await session.get(routes.show_job, jobs[0])
        values = {"job": job, "fields": fields(job), "tags": without_marks(job["tags"])}
        if name == "restart":
            words += _changed_example(values["fields"])
        if name in ("register", "delete"):
            files = await session.get(routes.job_files, jobs[0])
            size = sum(file["size"] for file in files)
            values |= {"paths": paths(files), "files": len(files), "size": size}
    command = shlex.join(words)
    return render.page(
        request, "action.html", name=name, action=action, jobs=jobs, command=command, **values
    )


def _changed_example(present: Sequence[Field]) -> list[str]:
    """The option that changes an input or a parameter, with its present value, if there is one."""
    some = (field for field in present if field.key.startswith(("inputs.", "search_space.")))
    return [word for field in itertools.islice(some, 1) for word in ("--set", "=".join(field))]


# Those that take no more than the job.
_ORDERS = {
    "cancel": routes.cancel_job,
    "preempt": routes.preempt_job,
    "release": routes.release_job,
}


async def _do(session: Session, action: str, job: str, values: Mapping[str, str]) -> str:
    """Do it to one job with the values of the form; returns the job or model to look at next."""
    data: dict[str, Any] | None
    text = values.get("text", "").strip()
    if action in _ORDERS:
        data = {"by": "the web page"} if action == "preempt" else None
        await session.call(_ORDERS[action], job, body=data)
    elif action == "restart":
        lines = values.get("set", "").splitlines()
        changed = changes(await session.get(routes.show_job, job), values)
        changed += [line.strip() for line in lines if line.strip()]
        data = {"set": changed} if changed else None
        choice = values.get("choice", "")
        query = {choice: "true"} if choice in ("resume", "fresh") else {}
        return (await session.get(routes.restart_job, job, body=data, **query))["name"]
    elif action in ("archive", "restore"):
        await session.call(routes.update_job, job, body={"archived": action == "archive"})
    elif action in ("tag", "note", "star", "unstar"):
        await session.call(routes.update_job, job, body=_tag_changes(action, text, values))
    elif action == "register":
        keys = ("path", "version", "description")
        model = {key: values[key].strip() for key in keys if values.get(key, "").strip()}
        made = (
            await session.call(routes.create_model, body={"name": text, "job": job, **model})
        ).json()
        return f"{made['name']}:{made['version']}"
    else:
        await session.call(routes.delete_job, job)
    return job


def _tag_changes(action: str, text: str, values: Mapping[str, str]) -> dict[str, Any]:
    """The tags to set, and those to remove: a tag whose input was emptied, an empty note."""
    if action == "note":
        return {"tags": {NOTE: text}} if text else {"remove_tags": [NOTE]}
    if action in ("star", "unstar"):
        return {"tags": {STAR: "yes"}} if action == "star" else {"remove_tags": [STAR]}
    prefix = "tag."
    inputs = {k.removeprefix(prefix): v.strip() for k, v in values.items() if k.startswith(prefix)}
    left = {key: value for key, value in inputs.items() if value}
    more = _tags(text) if text or not inputs else {}
    return {"tags": {**left, **more}, "remove_tags": [key for key in inputs if key not in left]}


def _tags(text: str) -> dict[str, str]:
    """``a=1 b=2`` as tags. Raises UsageError."""
    try:
        pairs = [word.split("=", 1) for word in shlex.split(text)]
        tags = dict(pairs)
    except ValueError:
        tags = {}
    if not tags:
        raise UsageError(f"{text[:80]!r} has no tags", hint="write KEY=VALUE KEY=VALUE")
    return tags
