"""What answers a request for a route: the route's function, called with what the request says."""

from __future__ import annotations

from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from allranks.api.routes import Route
from allranks.server.arguments import Signature, signature
from allranks.server.auth.roles import person, require_role
from allranks.server.http.error_responses import Answer

_FUNCTIONS = "allranks.server.api.routes"


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

    def __init__(self, row: Route[Any]) -> None:
        self.row = row
        self._signature: Signature | None = None

    def signature(self) -> Signature:
        """The function with its arguments. The first call imports its module."""
        if self._signature is None:
            module, _, name = self.row.function.partition(":")
            function = getattr(import_module(f"{_FUNCTIONS}.{module}"), name)
            self._signature = signature(function, self.row.path)
        return self._signature

    async def answer(self, request: Request) -> Response:
        require_role(person(request), self.row.role)
        called = self._signature
        if called is None:  # in a thread: the import must not block the event loop
            called = await run_in_threadpool(self.signature)
        body = await request.body() if called.takes_body else b""
        if iscoroutinefunction(called.function):
            result = await called.call(request, body)
        else:
            result = await run_in_threadpool(called.call, request, body)
        if isinstance(result, Response):
            return result
        return Answer(result, self.row.status) if self.row.status != 204 else Response(None, 204)
