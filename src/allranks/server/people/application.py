"""People's application: Starlette with the routes of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allranks.server.arguments import Signature, signature
from allranks.server.auth.roles import person, require_role
from allranks.server.http.error_responses import HANDLERS, Answer
from allranks.server.http.request_limits import Limited
from allranks.server.http.request_text import CheckedJson
from allranks.server.people.table import ROUTES, Row

_FUNCTIONS = "allranks.server.routes"


class _Rest(Convertor[str]):
    """The rest of a URL; Starlette's `path` stops at a newline, which a file name may contain."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("rest", _Rest())


class Endpoint:
    """Calls the function of a route."""

    def __init__(self, row: Row) -> None:
        self.row = row

    @cached_property
    def signature(self) -> Signature:
        """The function, whose module is imported now."""
        module, _, name = self.row.function.partition(":")
        return signature(getattr(import_module(f"{_FUNCTIONS}.{module}"), name), self.row.path)

    async def answer(self, request: Request) -> Response:
        require_role(person(request), self.row.role)
        if "signature" not in vars(self):
            await run_in_threadpool(getattr, self, "signature")
        body = await request.body() if self.signature.takes_body else b""
        if iscoroutinefunction(self.signature.function):
            found = await self.signature.call(request, body)
        else:
            found = await run_in_threadpool(self.signature.call, request, body)
        if isinstance(found, Response):
            return found
        return Answer(found, self.row.status) if self.row.status != 204 else Response(None, 204)


def create_app(lifespan: Callable[[Starlette], Any]) -> Starlette:
    """The application. Set its ``state.services`` before the first request."""
    return Starlette(
        routes=[
            *(Route(row.path, Endpoint(row).answer, methods=[row.method]) for row in ROUTES),
            Route("/openapi.json", _describe),
        ],
        lifespan=lifespan,
        exception_handlers=HANDLERS,
        middleware=[Middleware(Limited), Middleware(CheckedJson)],
    )


async def _describe(_: Request) -> Response:
    from allranks.server.people.openapi import description  # lazy: it imports all routes

    return Answer(await run_in_threadpool(description, map(Endpoint, ROUTES)))
