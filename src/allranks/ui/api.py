"""Calls of the public API, with the token of the person who looks at the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
from starlette.requests import Request

from allranks.api import routes
from allranks.api.routes import Answer, Route
from allranks.errors import Forbidden, ServerError, Unreachable, from_body
from allranks.http_client import Client

if TYPE_CHECKING:
    from allranks.api.metrics import ShownJob

# Seconds: the API waits up to a minute for news.
_PATIENCE = 90.0


class Person(NamedTuple):
    """Whose token it is: ``role`` is reader, member or admin."""

    name: str
    role: str

    @property
    def may_change(self) -> bool:
        """Whether there are jobs that they may change: their own, and for admins all."""
        return self.role != "reader"

    def require_member(self) -> None:
        """Raises Forbidden for a reader."""
        if not self.may_change:
            hint = "an admin gives the role: allranks server token create NAME --role member"
            raise Forbidden(f"{self.name} is a reader and may not change anything", hint=hint)

    def may_change_job(self, job: Mapping[str, Any]) -> bool:
        return self.role == "admin" or (self.may_change and job["created_by"] == self.name)


class Api:
    """The API at ``url``. Calls raise the error that the server reported, or Unreachable."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Each open page waits for news on a connection of its own.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(base_url=url, timeout=_PATIENCE, limits=limits)

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, token: str, method: str, path: str, data: Any = None) -> httpx.Response:
        """One request and its whole answer."""
        headers = {"authorization": f"Bearer {token}"}
        body: dict[str, Any] = {} if data is None else {"json": data}
        try:
            answer = await self._http.request(method, path, headers=headers, **body)
        except httpx.HTTPError as error:
            raise _unreachable(error) from None
        return _checked(answer)

    @asynccontextmanager
    async def stream(
        self, token: str, method: str, path: str, data: Any = None, *, span: str = ""
    ) -> AsyncIterator[httpx.Response]:
        """A request whose answer is read piece by piece. ``span``: a Range header."""
        headers = {"authorization": f"Bearer {token}", **({"range": span} if span else {})}
        body: dict[str, Any] = {} if data is None else {"json": data}
        try:
            async with self._http.stream(method, path, headers=headers, **body) as answer:
                if answer.status_code >= 400 and answer.status_code != 416:
                    await answer.aread()
                    _checked(answer)
                yield answer
        except httpx.HTTPError as error:
            raise _unreachable(error) from None


class Session:
    """The API as one person sees it."""

    def __init__(self, api: Api, token: str) -> None:
        self._api, self._token = api, token

    async def get(
        self, route: Route[Answer], *names: str, body: Any = None, **query: Any
    ) -> Answer:
        """The JSON answer of a route."""
        answer: Answer = (await self.call(route, *names, body=body, **query)).json()
        return answer

    async def call(
        self, route: Route[Any], *names: str, body: Any = None, **query: Any
    ) -> httpx.Response:
        """The whole answer, whatever it is. What is empty in the query is left out."""
        query = {key: value for key, value in query.items() if value != ""}
        return await self._api.call(self._token, *route.at(*names, **query), body)

    def stream(self, route: Route[Any], *names: str, body: Any = None, span: str = "") -> Any:
        """See ``Api.stream``."""
        return self._api.stream(self._token, *route.at(*names), body, span=span)

    @property
    def token(self) -> str:
        return self._token

    def client(self) -> Client:
        """A client for code that is not asynchronous, to be used in another thread."""
        return Client(self._api.url, self._token)

    async def person(self) -> Person:
        server = await self.get(routes.show_server)
        return Person(server["user"], server["role"])


async def named_job(request: Request) -> tuple[Session, ShownJob]:
    """The session of a request, and the job in its path."""
    session: Session = request.state.session
    return session, await session.get(routes.show_job, request.path_params["name"])


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code < 400:
        return answer
    try:
        body: Mapping[str, Any] = answer.json()
    except json.JSONDecodeError:
        body = {}
    if "error" not in body:
        message = f"the server answered {answer.status_code} without a reason"
        raise ServerError(message, hint="its log says more: server.log in ALLRANKS_HOME")
    raise from_body(body)


def _unreachable(error: httpx.HTTPError) -> Unreachable:
    text = str(error) or type(error).__name__
    return Unreachable(f"the server does not answer: {text}", hint="allranks server status")
