"""What answers a request for a route: the route's function, called with what the request says."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from inspect import iscoroutinefunction

from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from allranks.server.arguments import Signature, signature
from allranks.server.auth.roles import person, require_role
from allranks.server.http.error_responses import Answer
from allranks.server.people.table import Row

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
