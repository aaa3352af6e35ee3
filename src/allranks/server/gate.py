"""Who comes in, decided before anything of a request but its head is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from allranks.errors import AllranksError, Unauthorized
from allranks.server.agents import routes as agents
from allranks.server.auth.roles import PERSON
from allranks.server.dependencies import Services
from allranks.server.http.error_responses import reply
from allranks.server.routes.mlflow import PREFIX

log = logging.getLogger("allranks.gate")

App = Callable[..., Any]

# Seconds between two lines on refused tokens in the log.
_PAUSE = 10.0
# Nothing that a job has written is a page of this server's.
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
]


class Gate:
    """The application of a whole server: MLflow, people's routes, and the agents'."""

    def __init__(self, with_: Services, people: App, agents: App, mlflow: App) -> None:
        self._with, self._people, self._agents, self._mlflow = with_, people, agents, mlflow
        self._refused, self._told_at = 0, 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._people(scope, receive, send)
            return
        try:
            app = self._let_in(scope, Headers(scope=scope))
        except AllranksError as error:
            await reply(error)(scope, receive, send)
            return
        await app(scope, receive, send if app is self._mlflow else _as_data(send))

    def _let_in(self, scope: Scope, headers: Headers) -> App:
        """The application that is to answer. Raises Forbidden, and Unauthorized for a person."""
        if f"{scope['path']}/".startswith(f"{PREFIX}/"):
            return self._mlflow  # which refuses in MLflow's words
        self._with.names.hold_to(headers)
        if scope["path"].startswith(agents.PREFIX):
            return self._agents
        try:
            scope[PERSON] = self._with.auth.person(headers.get("authorization"))
        except Unauthorized:
            self._note(scope)
            raise
        return self._people

    def _note(self, scope: Scope) -> None:
        """Guessing is hopeless, but whoever runs the server is to see it."""
        self._refused += 1
        if time.monotonic() - self._told_at > _PAUSE:
            where = (scope.get("client") or ("nowhere",))[0]
            log.warning("%d requests had no valid token, the last from %s", self._refused, where)
            self._refused, self._told_at = 0, time.monotonic()


def _as_data(send: Send) -> Send:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sent
