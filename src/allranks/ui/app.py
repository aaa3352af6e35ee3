"""The page's application: routes, who may see them, and how errors are shown."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from allranks.errors import AllranksError, Forbidden, NotFound, ServerError, Unauthorized
from allranks.ui import live, render, security
from allranks.ui.api import Api, Session
from allranks.ui.pages import (
    actions,
    assets,
    code,
    compare,
    computes,
    details,
    endpoints,
    files,
    job,
    jobs,
    logs,
    metrics,
    ranks,
    report,
    services,
    signing,
    uploads,
)
from allranks.ui.service_links import ServiceLinks
from allranks.ui.sign_in import Doorkeeper

BASE = "/ui"

Handler = Callable[[Request], Awaitable[Response]]

# For everybody who is signed in: address, what answers, methods.
_PAGES: tuple[tuple[str, Handler, tuple[str, ...]], ...] = (
    ("/", jobs.jobs, ("GET",)),
    ("/changes", live.changes, ("GET",)),
    ("/find", jobs.find, ("GET",)),
    ("/compare", compare.page, ("GET",)),
    ("/jobs/{name}", job.overview, ("GET",)),
    ("/jobs/{name}/metrics", metrics.page, ("GET",)),
    ("/jobs/{name}/metrics.json", metrics.points, ("GET",)),
    ("/jobs/{name}/ranks", ranks.page, ("GET",)),
    ("/jobs/{name}/ranks.json", metrics.ranks, ("GET",)),
    ("/jobs/{name}/resources.json", metrics.resources, ("GET",)),
    ("/jobs/{name}/sweep.json", metrics.trials, ("GET",)),
    ("/jobs/{name}/logs", logs.page, ("GET",)),
    ("/jobs/{name}/log", logs.part, ("GET",)),
    ("/jobs/{name}/tail", logs.tail, ("GET",)),
    ("/jobs/{name}/search", logs.search, ("GET",)),
    ("/jobs/{name}/files", files.page, ("GET",)),
    ("/jobs/{name}/file", files.content, ("GET",)),
    ("/jobs/{name}/files.zip", files.download, ("GET",)),
    ("/jobs/{name}/stacks", job.stacks, ("GET", "POST")),
    ("/jobs/{name}/code", code.page, ("GET",)),
    ("/jobs/{name}/service", services.open_service, ("GET",)),
    ("/jobs/{name}/report", report.page, ("GET",)),
    ("/jobs/{name}/details", details.page, ("GET",)),
    ("/jobs/{name}/spec.json", details.as_json, ("GET",)),
    ("/jobs/{name}/events.json", details.as_json, ("GET",)),
    ("/do/{action}", actions.act, ("GET", "POST")),
    ("/upload", uploads.upload, ("GET", "POST")),
    ("/computes", computes.page, ("GET",)),
    ("/endpoints", endpoints.page, ("GET",)),
    ("/endpoints/{name}", endpoints.endpoint, ("GET",)),
    ("/endpoints/{name}/series.json", endpoints.series, ("GET",)),
    ("/endpoints/{name}/traffic", endpoints.change_traffic, ("POST",)),
    ("/endpoints/{name}/try", endpoints.send_request, ("GET", "POST")),
    ("/deploy", endpoints.deploy, ("GET", "POST")),
    ("/assets/{kind}", assets.page, ("GET",)),
    ("/assets/{kind}/{reference:path}", assets.asset, ("GET",)),
    ("/sign-out", signing.sign_out, ("POST",)),
)


def create_app(api_url: str, key: bytes, services: Path) -> ASGIApp:
    """The application. ``key`` seals the cookies: see ``sign_in``; ``services`` is the folder of
    ``ServiceLinks``."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await app.state.api.close()

    routes = [
        Route("/health", _health),
        Route("/link", signing.link, methods=["POST"]),
        Route("/sign-in", signing.sign_in, methods=["GET", "POST"]),
        Route("/plotly.js", _plotly),
        Mount("/static", GZipMiddleware(_static)),
        *(_route(*row) for row in _PAGES),
    ]
    app = Starlette(
        routes=[Mount(BASE, app=Router(routes, redirect_slashes=False))],
        lifespan=lifespan,
        exception_handlers={AllranksError: _refused, HTTPException: _no_page, Exception: _broken},
    )
    app.state.api = Api(api_url)
    app.state.service_links = ServiceLinks(services)
    app.state.doorkeeper = Doorkeeper(key)
    app.state.templates = render.environment()
    return _Secured(app)


def _route(path: str, page: Handler, methods: tuple[str, ...]) -> Route:
    """Numbers and output are compressed."""
    numbers = path.endswith((".json", "/log"))
    compressed = Middleware(GZipMiddleware if numbers else _CompressedRefresh)
    return Route(path, _signed_in(page), methods=[*methods], middleware=[compressed])


class _CompressedRefresh:
    """Compresses pages that refresh one that is open, and lack the secret of its forms. Others are
    not, whose sizes would tell of that secret to whoever may choose a part of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._whole, self._compressed = app, GZipMiddleware(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._compressed if _is_refresh(Request(scope)) else self._whole
        await app(scope, receive, send)


def _is_refresh(request: Request) -> bool:
    """Whether `page.js` asks for what is new on a page."""
    return request.method == "GET" and "x-allranks-refresh" in request.headers


class _Secured:
    """Checks where a request comes from, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def add(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in security.HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            security.check_origin(scope["method"], Request(scope).headers)
        except Forbidden as error:
            await PlainTextResponse(f"{error}\n", 403)(scope, receive, add)
            return
        await self._app(scope, receive, add)


def _signed_in(page: Handler) -> Handler:
    """The page for people with a valid cookie; others are led to sign in, and back."""

    async def checked(request: Request) -> Response:
        state = request.app.state
        cookie = request.cookies.get(signing.cookie_name(request), "")
        signed = state.doorkeeper.open(cookie)
        try:
            if signed is None:
                raise Unauthorized("nobody is signed in")
            request.state.session = Session(state.api, signed.token)
            request.state.person = await request.state.session.person()
        except Unauthorized:
            if request.method != "GET" or request.headers.get("accept", "").startswith("text/html"):
                there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                back = quote(there, safe="")
                return RedirectResponse(f"{BASE}/sign-in?back={back}", 303)
            return JSONResponse({"error": "sign in again"}, 401)
        request.state.forms = "" if _is_refresh(request) else signed.forms
        if request.method == "POST":
            await signing.check_form(request, signed.forms)
        return await page(request)

    return checked


async def _refused(request: Request, error: Exception) -> Response:
    """The page of an error of the API."""
    assert isinstance(error, AllranksError)
    if request.headers.get("accept", "").startswith("text/html"):
        return render_error(request, error)
    return JSONResponse(error.body(), error.http)


def render_error(request: Request, error: AllranksError) -> Response:
    is_form = request.method == "POST"
    return render.page(request, "error.html", error=error, is_form=is_form, status=error.http)


async def _no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if path.endswith("/") and path != f"{BASE}/":
        # Not Starlette's redirect, which names a host: here that is the server's name for us.
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(path.rstrip("/") + query, 307)
    problem = NotFound(f"{request.method} {request.url.path}: {error.detail}")
    return await _refused(request, problem)


async def _broken(request: Request, error: Exception) -> Response:
    """The page of a defect; its stack trace is in this process's log."""
    problem = ServerError("this page has a defect", hint="see `ui/server.log` in the server's home")
    answer = await _refused(request, problem)
    answer.status_code = 500
    return answer


_FILES = StaticFiles(directory=render.FOLDER / "static")


async def _static(scope: Scope, receive: Receive, send: Send) -> None:
    """Our scripts and styles. Browsers keep them, and ask each time whether they have changed."""

    async def add(message: Any) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["cache-control"] = "no-cache"
        await send(message)

    await _FILES(scope, receive, add)


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok")


def _without_styles(script: str) -> str:
    """Code that keeps a part for maps, which is not used here, from adding inline styles, which the
    page's policy refuses with an error in the browser's console."""
    ids = set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', script))
    make = "document.head.appendChild(document.createElement('meta')).id="
    return "".join(f"{make}'{name}';" for name in ids)


async def _plotly(request: Request) -> Response:
    """Plotly's script from its own package, compressed once."""
    state = request.app.state
    if not hasattr(state, "plotly"):
        # It takes half a second: other pages must not wait.
        state.plotly = await run_in_threadpool(_compressed_plotly)
    headers = {"content-encoding": "gzip", "cache-control": "private, max-age=86400"}
    return Response(state.plotly, media_type="text/javascript", headers=headers)


# Of maps, fonts and the makers' cloud; www.w3.org names kinds of XML.
_OTHER_HOSTS = re.compile(r"https?://(?!www\.w3\.org/)[\w.-]+")


def _compressed_plotly() -> bytes:
    """The script, with no other host in it that something could be sent to or loaded from."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    script = (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text()
    script = _OTHER_HOSTS.sub("", script)
    return gzip.compress((_without_styles(script) + script).encode(), 6)
