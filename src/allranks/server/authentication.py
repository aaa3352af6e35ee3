"""Authenticate each request by its headers alone, and route it to the application that answers
it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from allranks.core.data.addresses import USER_AGENT
from allranks.errors import AllranksError, Forbidden, Passing, Unauthorized
from allranks.http_limits.connection_limit import RefusalLog, most_per_address
from allranks.http_limits.header_limits import CONNECTION
from allranks.server.agent_api import routes as agents
from allranks.server.api.routes.mlflow import PREFIX
from allranks.server.api.routes.mlflow import token as mlflow_token
from allranks.server.api.routes.ui import PREFIX as UI
from allranks.server.api.routes.ui import is_guessed_page
from allranks.server.auth.roles import PERSON, Person
from allranks.server.dependencies import Services
from allranks.server.http.error_responses import reply
from allranks.server.http.service_pages import ServicePages, label_of

log = logging.getLogger("allranks.authentication")

App = Callable[..., Any]

# Seconds between checks of the token of a request that goes on.
_CHECK = 1.0
# Answers without a token, as long as this process answers at all.
HEALTH = "/healthz"
_HEALTHY = PlainTextResponse("ok\n")
# Browsers must not render files that jobs have written as pages of this server.
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
]


class TooManyRequests(Passing):
    http = 429


class Gate:
    """The application of a whole server: MLflow, the web page, people's routes, and the agents'."""

    def __init__(self, services: Services, people: App, agents: App, mlflow: App, ui: App) -> None:
        self._service_pages = ServicePages(services.home.ui / "services")
        self._services, self._people = services, people
        self._agents, self._mlflow, self._ui = agents, mlflow, ui
        self._refusals = RefusalLog(log, "%d requests had no valid token, the last from %s")
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._people(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if headers.get("user-agent") == USER_AGENT:
            # A redirect or a name led here. A status of its own: HEAD has no body.
            error = Forbidden("this is the API of a server of allranks, not data")
            await reply(error, HTTPStatus.MISDIRECTED_REQUEST)(scope, receive, send)
            return
        try:
            app = self._choose(scope, headers)
        except AllranksError as error:
            await reply(error)(scope, receive, send)
            return
        if app in (self._ui, self._service_pages):
            await app(scope, receive, send)  # which set their own headers
            return
        if app is self._mlflow:  # as these; but for ranks' tokens, which last as long as their job
            token = mlflow_token(headers)
            with self._while_valid(scope, token) if self._is_person(token) else nullcontext():
                await app(scope, receive, send)
            return
        send = _with_headers(send)
        if PERSON not in scope:
            await app(scope, receive, send)
            return
        try:
            token = headers.get("authorization")
            with self._counted(scope[PERSON]), self._while_valid(scope, token):
                await app(scope, receive, send)
        except TooManyRequests as error:
            await reply(error)(scope, receive, send)

    @contextlib.contextmanager
    def _counted(self, person: Person) -> Iterator[None]:
        """A request of the person, who may have half of an address's connections: others come from
        that address, too. Raises TooManyRequests."""
        most = most_per_address() // 2
        if self._running[person.name] >= most:
            hint = "end some, such as `job logs -f` and `job exec`, and try again"
            raise TooManyRequests(f"{person.name} has {most} requests that run", hint=hint)
        self._running[person.name] += 1
        try:
            yield
        finally:
            self._running[person.name] -= 1
            if not self._running[person.name]:
                del self._running[person.name]

    @contextlib.contextmanager
    def _while_valid(self, scope: Scope, token: str | None) -> Iterator[None]:
        """Cut a request, and its answer, once the token is revoked or has expired: neither must
        look complete."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_CHECK, lambda: check())

        def check() -> None:
            nonlocal timer
            if self._is_person(token):
                timer = loop.call_later(_CHECK, check)
            else:
                scope[CONNECTION].transport.abort()

        try:
            yield
        finally:
            timer.cancel()

    def _is_person(self, token: str | None) -> bool:
        with contextlib.suppress(Unauthorized):
            return bool(self._person(token))
        return False

    def _person(self, token: str | None) -> Person:
        """Raises Unauthorized."""
        return self._services.auth.person(token)

    def _choose(self, scope: Scope, headers: Headers) -> App:
        """The application for a request. Raises Forbidden, and Unauthorized for a person."""
        if label_of(headers) is not None:
            return self._service_pages
        if f"{scope['path']}/".startswith(f"{PREFIX}/"):
            return self._mlflow  # which authenticates by itself and refuses in MLflow's format
        if f"{scope['path']}/".startswith(f"{UI}/") or is_guessed_page(scope, headers):
            return self._ui  # as MLflow
        self._services.host_names.check(headers)
        if scope["path"] == HEALTH:
            return _HEALTHY
        if scope["path"].startswith(agents.PREFIX):
            return self._agents
        try:
            scope[PERSON] = self._person(headers.get("authorization"))
        except Unauthorized:
            self._refusals.note((scope.get("client") or ("nowhere",))[0])
            raise
        return self._people


def _with_headers(send: Send) -> Send:
    async def add(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return add
