"""Models, data, environments, components, datastores, states and schedules."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.errors import NotFound
from allranks.ui import render
from allranks.ui.api import Session
from allranks.ui.pages.details import inputs_of
from allranks.ui.pages.graph import Graph, graph


class Kind(NamedTuple):
    """``columns`` of the list, and what to do first where there is none."""

    title: str
    columns: tuple[str, ...]
    first: str


KINDS = {
    "models": Kind(
        "Models",
        ("version", "labels", "type", "job", "created_at"),
        "allranks model register NAME --job JOB",
    ),
    "data": Kind(
        "Data",
        ("version", "labels", "type", "path", "created_at"),
        "allranks data create NAME --path FOLDER",
    ),
    "environments": Kind(
        "Environments",
        ("version", "labels", "curated", "description", "created_at"),
        "allranks environment create NAME --requirements requirements.txt",
    ),
    "components": Kind(
        "Components",
        ("version", "labels", "type", "description", "created_at"),
        "allranks component create -f component.yml",
    ),
    "datastores": Kind(
        "Datastores",
        ("type", "uri", "credentials"),
        "allranks datastore create NAME --type s3 --bucket BUCKET",
    ),
    "states": Kind(
        "States",
        ("version", "job", "size"),
        "allranks run --state NAME -- python train.py",
    ),
    "schedules": Kind(
        "Schedules",
        ("trigger", "next_at", "last_job", "paused"),
        "allranks schedule create -f schedule.yml",
    ),
}

# Those that job files name by version, and the jobs that a page lists and draws.
_USED, _USERS, _DRAWN = ("models", "data", "environments", "components"), 50, 8


async def page(request: Request) -> Response:
    kind = _kind(request)
    session: Session = request.state.session
    answer = await session.get(routes.by_address(f"GET /{request.path_params['kind']}"))
    rows: list[dict[str, Any]] = answer if isinstance(answer, list) else next(iter(answer.values()))
    return render.page(
        request, "assets.html", kind=kind, name=request.path_params["kind"], rows=rows
    )


async def asset(request: Request) -> Response:
    """One of them, as the API shows it."""
    kind, reference = _kind(request), request.path_params["reference"]
    session: Session = request.state.session
    plural = request.path_params["kind"]
    version = await session.get(routes.that_shows(plural), reference)
    users: list[Any] = []
    if plural in _USED:
        uses = f"{version['name']}:{version['version']}"
        filters = {"children": "true", "archived": "all", "limit": _USERS}
        users = await session.get(routes.list_jobs, uses=uses, **filters)
    lineage = await _lineage(session, plural, version, users) if plural in _USED else None
    return render.page(
        request,
        "asset.html",
        kind=kind,
        name=plural,
        asset=version,
        of=reference,
        users=users,
        lineage=lineage,
    )


async def _lineage(
    session: Session, plural: str, asset: dict[str, Any], users: list[Any]
) -> Graph | None:
    """What the job that made it read, that job, the asset, and jobs that use it. None if neither is
    known."""
    name = f"{asset['name']}:{asset['version']}"
    boxes: dict[str, Any] = {}
    maker = asset.get("job")
    if maker:
        inputs: dict[str, tuple[str, str]] = {}
        status = "deleted"
        with contextlib.suppress(NotFound):
            job = await session.get(routes.show_job, maker)
            inputs, status = inputs_of(job["spec"]), job["status"]
        read = {path: page for path, page in inputs.values() if page}
        boxes |= {path: _box((), "input", page) for path, page in read.items()}
        boxes[maker] = _box(tuple(read), status, _page(maker))
    boxes[name] = _box((maker,) if maker else (), plural, f"/ui/assets/{plural}/{quote(name)}")
    for user in users[:_DRAWN]:
        boxes.setdefault(user["name"], _box((name,), user["status"], _page(user["name"])))
    return graph(boxes) if len(boxes) > 1 else None


def _box(after: tuple[str, ...], status: str, page: str) -> dict[str, Any]:
    return {"after": after, "status": status, "page": page}


def _page(job: str) -> str:
    return f"/ui/jobs/{quote(job, safe='')}"


def _kind(request: Request) -> Kind:
    name = request.path_params["kind"]
    if name not in KINDS:
        raise NotFound(f"there is no page for {name[:80]!r}")
    return KINDS[name]
