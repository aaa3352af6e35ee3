"""Direct answers as Starlette does."""

import asyncio
import time
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from allranks.errors import NotFound
from allranks.server.http import error_responses
from allranks.server.http.direct import Direct
from allranks.server.http.error_responses import HANDLERS


async def told(request: Request) -> Response:
    body = (await request.body()).decode()
    query = dict(request.query_params)
    return JSONResponse({"path": request.path_params, "query": query, "body": body})


async def absent(request: Request) -> Response:
    raise NotFound("no such thing", hint="none")


async def broken(request: Request) -> Response:
    raise ZeroDivisionError


async def invalid(request: Request) -> Response:
    raise KeyError("x")


async def mounted(scope, receive, send) -> None:
    await Response("mounted")(scope, receive, send)


ROUTES = [
    Route("/agent/v1/{node:int}/told", told, methods=["POST"]),
    Route("/agent/v1/{node:int}/told/{attempt:int}/{feed}", told, methods=["PUT"]),
    Route("/agent/v1/{node:int}/absent", absent),
    Route("/agent/v1/{node:int}/broken", broken),
    Route("/agent/v1/{node:int}/invalid", invalid),
    Mount("/mlflow", app=mounted),
]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/agent/v1/3/told?a=1&b=%20"),
        ("PUT", "/agent/v1/3/told/7/metrics"),
        ("PUT", "/agent/v1/3/told/x/metrics"),
        ("PUT", "/agent/v1/3/told"),
        ("POST", "/agent/v1/three/told"),
        ("POST", "/agent/v1/3/told/"),
        ("GET", "/agent/v1/3/absent"),
        ("HEAD", "/agent/v1/3/absent"),
        ("GET", "/agent/v1/3/broken"),
        ("GET", "/agent/v1/3/invalid"),
        ("GET", "/agent/v1/3/nothing"),
        ("GET", "/agent"),
        ("GET", "/mlflow/x/y/told"),
    ],
)
def test_it_answers_as_starlette(method: str, path: str) -> None:
    async def ask(app) -> tuple[int, bytes, dict[str, str]]:
        way = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=way, base_url="http://localhost") as client:
            answer = await client.request(method, path, content=b"body" * (method != "GET"))
        return answer.status_code, answer.content, dict(answer.headers)

    ours = asyncio.run(ask(Direct(ROUTES)))
    assert ours == asyncio.run(ask(Starlette(routes=ROUTES, exception_handlers=HANDLERS)))


def test_an_unforeseen_error_is_raised_after_the_answer() -> None:
    async def ask() -> None:
        way = httpx.ASGITransport(Direct(ROUTES))
        async with httpx.AsyncClient(transport=way, base_url="http://localhost") as client:
            await client.get("/agent/v1/3/broken")

    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask())


async def late(_: Request) -> Response:
    from allranks.server import gone_since  # type: ignore[attr-defined]

    return gone_since  # type: ignore[no-any-return]


async def lacks(_: Request) -> Response:
    """What an object of before lacks, and the files of now ask for."""
    return object().new_field  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(("route", "began"), [(late, None), (lacks, 0.0), (lacks, None)])
def test_code_that_has_changed_under_a_running_server_is_told(
    route: Any, began: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_responses, "_STARTED", time.time() if began is None else began)

    async def ask() -> str:
        app = Direct([Route("/late", route)])
        way = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=way, base_url="http://localhost") as client:
            return (await client.get("/late")).text

    text = asyncio.run(ask())
    has_changed = "the code of allranks has changed since the server started" in text
    assert (
        has_changed == ("allranks server restart" in text) == (route is late or began is not None)
    )
    assert has_changed or "the server failed: AttributeError" in text


def test_a_path_that_is_not_text_is_refused() -> None:
    async def ask() -> int:
        way = httpx.ASGITransport(Direct(ROUTES))
        async with httpx.AsyncClient(transport=way, base_url="http://localhost") as client:
            return (await client.post("/agent/v1/3/told?a=%ff")).status_code

    assert asyncio.run(ask()) == 400
