"""People's application: Starlette with the routes of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allranks.api.routes import ROUTES
from allranks.server.api.endpoint import Endpoint
from allranks.server.http.error_responses import HANDLERS, Answer
from allranks.server.http.request_limits import Limited
from allranks.server.http.request_text import CheckedJson


def create_app(lifespan: Callable[[Starlette], Any]) -> Starlette:
    """The application. Set its ``state.services`` before the first request."""
    app = Starlette(
        routes=[
            *(Route(row.path, Endpoint(row).answer, methods=[row.method]) for row in ROUTES),
            Route("/openapi.json", _describe),
        ],
        lifespan=lifespan,
        exception_handlers=HANDLERS,
        middleware=[Middleware(Limited), Middleware(CheckedJson)],
    )
    app.router.redirect_slashes = False  # a redirect has no body that says what is wrong
    return app


async def _describe(_: Request) -> Response:
    from allranks.server.api.openapi import description  # lazy: it imports all routes

    return Answer(await run_in_threadpool(description, map(Endpoint, ROUTES)))
