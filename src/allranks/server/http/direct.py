"""An application for frequent requests: it calls their routes without Starlette's routing.

Routing, nested exception handlers and two middlewares take Starlette longer than an agent's request
takes its route; a thousand idle agents send hundreds of requests a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from allranks.server.http.error_responses import HANDLERS
from allranks.server.http.request_limits import Limited
from allranks.server.http.request_text import CheckedAddress


class Direct:
    """``routes`` as Starlette serves them, errors too; their paths differ in the fourth part. What
    matches no route exactly is left to Starlette."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes = routes
        self._starlette = Starlette(routes=routes, exception_handlers=HANDLERS)
        self.state = self._starlette.state
        self._checked = Limited(CheckedAddress(self._answer))
        self._routes: dict[str, list[Route]] = defaultdict(list)
        for route in routes:
            if isinstance(route, Route):
                self._routes[_key(route.path)].append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._checked(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._match(scope) if scope["type"] == "http" else None
        if route is None:
            await self._starlette(scope, receive, send)
            return
        scope["app"] = self._starlette
        request, unforeseen = Request(scope, receive), None
        try:
            response: Response = await route.endpoint(request)
        except Exception as error:
            kind = next(each for each in type(error).__mro__ if each in HANDLERS)
            unforeseen = error if kind is Exception else None
            response = await HANDLERS[kind](request, error)
        await response(scope, receive, send)
        if unforeseen is not None:
            raise unforeseen  # so that its trace is logged

    def _match(self, scope: Scope) -> Route | None:
        """The route of a request, with its parameters in the scope."""
        for route in self._routes.get(_key(scope["path"]), ()):
            match = route.path_regex.match(scope["path"])
            if match is not None and scope["method"] in (route.methods or ()):
                scope["path_params"] = _converted(route, match.groupdict())
                return route
        return None


def _converted(route: Route, parameters: dict[str, str]) -> dict[str, Any]:
    return {name: route.param_convertors[name].convert(text) for name, text in parameters.items()}


def _key(path: str) -> str:
    words = path.split("/", 5)
    return words[4] if len(words) > 4 else ""
