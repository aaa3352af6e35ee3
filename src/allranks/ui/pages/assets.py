"""Models, data, environments, components, datastores, states and schedules."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from allranks.errors import NotFound
from allranks.ui import render
from allranks.ui.api import Session


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

# Those that job files name by version, and the jobs that a page lists.
_USED, _USERS = ("models", "data", "environments", "components"), 50


async def page(request: Request) -> Response:
    kind = _kind(request)
    session: Session = request.state.session
    answer = await session.get(request.path_params["kind"])
    rows: list[dict[str, Any]] = answer if isinstance(answer, list) else next(iter(answer.values()))
    return render.page(
        request, "assets.html", kind=kind, name=request.path_params["kind"], rows=rows
    )


async def asset(request: Request) -> Response:
    """One of them, as the API shows it."""
    kind, reference = _kind(request), request.path_params["reference"]
    session: Session = request.state.session
    plural = request.path_params["kind"]
    version = await session.get(f"{plural}/{quote(reference, safe='')}")
    users: list[Any] = []
    if plural in _USED:
        uses = f"{version['name']}:{version['version']}"
        filters = {"children": "true", "archived": "all", "limit": _USERS}
        users = await session.get("jobs", uses=uses, **filters)
    return render.page(
        request, "asset.html", kind=kind, name=plural, asset=version, of=reference, users=users
    )


def _kind(request: Request) -> Kind:
    name = request.path_params["kind"]
    if name not in KINDS:
        raise NotFound(f"there is no page for {name[:80]!r}")
    return KINDS[name]
