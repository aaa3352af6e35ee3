"""Models, data, environments, components, datastores, states and schedules."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.core.amounts import counted
from allranks.errors import NotFound
from allranks.ui import render
from allranks.ui.api import Session
from allranks.ui.pages.details import inputs_of
from allranks.ui.pages.graph import Graph, graph


class Version(NamedTuple):
    """A version of an asset, its page, and in words how many jobs use it, with their page."""

    asset: dict[str, Any]
    page: str
    users: str
    users_page: str


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
# Versions that a page lists at first, and those of them whose users are counted, up to a number.
_VERSIONS, _COUNTED, _MOST_USERS = 50, 20, 20


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
    versions: list[Version] = []
    if plural in _USED:
        users = await _users(session, version, _USERS)
        versions = await _versions(session, plural, version["name"])
    most = len(versions) if request.query_params.get("versions") == "all" else _VERSIONS
    lineage = await _lineage(session, plural, version, users) if plural in _USED else None
    return render.page(
        request,
        "asset.html",
        kind=kind,
        name=plural,
        asset=version,
        of=reference,
        users=users,
        users_page=users and _users_page(version),
        versions=versions[:most],
        more_versions=len(versions) - most,
        lineage=lineage,
    )


async def _users(session: Session, asset: dict[str, Any], most: int) -> list[Any]:
    """The newest jobs that use a version."""
    filters = {"uses": _name(asset), "children": "true", "archived": "all", "limit": most}
    return await session.get(routes.list_jobs, **filters)


async def _versions(session: Session, plural: str, name: str) -> list[Version]:
    """Every version, the newest first."""
    route = routes.by_address(f"GET /{plural}")
    listed: list[dict[str, Any]] = (await session.get(route, name=name))[::-1]
    newest = (_users(session, each, _MOST_USERS + 1) for each in listed[:_COUNTED])
    texts = [_count_text(len(users)) for users in await asyncio.gather(*newest)]
    texts += ["jobs"] * (len(listed) - len(texts))
    return [
        Version(each, f"/ui/assets/{plural}/{quote(_name(each), safe='')}", text, _users_page(each))
        for each, text in zip(listed, texts, strict=True)
    ]


def _count_text(users: int) -> str:
    return f"more than {_MOST_USERS} jobs" if users > _MOST_USERS else counted(users, "job")


def _users_page(asset: dict[str, Any]) -> str:
    """The list of the jobs that use a version."""
    return f"/ui/{render.with_query({'uses': _name(asset), 'children': 'true', 'archived': 'all'})}"


def _name(asset: dict[str, Any]) -> str:
    return f"{asset['name']}:{asset['version']}"


async def _lineage(
    session: Session, plural: str, asset: dict[str, Any], users: list[Any]
) -> Graph | None:
    """What the job that made it read, that job, the asset, and jobs that use it. None if neither is
    known."""
    name = _name(asset)
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
