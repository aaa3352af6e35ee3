"""Calls of the public API, with the token of the person who looks at the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from allranks.errors import Forbidden, ServerError, Unreachable, from_body
from allranks.http_client import Client

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
        self._http = httpx.AsyncClient(base_url=f"{url}/api/v1/", timeout=_PATIENCE, limits=limits)

    async def close(self) -> None:
        await self._http.aclose()

    async def call(
        self, token: str, method: str, path: str, data: Any = None, **query: Any
    ) -> httpx.Response:
        """One request and its whole answer."""
        headers = {"authorization": f"Bearer {token}"}
        query = {key: value for key, value in query.items() if value not in (None, "")}
        body: dict[str, Any] = {} if data is None else {"json": data}
        try:
            answer = await self._http.request(method, path, params=query, headers=headers, **body)
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

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON answer to a GET."""
        return (await self._api.call(self._token, "GET", path, **query)).json()

    async def call(self, method: str, path: str, data: Any = None, **query: Any) -> httpx.Response:
        return await self._api.call(self._token, method, path, data, **query)

    def stream(self, method: str, path: str, data: Any = None, *, span: str = "") -> Any:
        """See ``Api.stream``."""
        return self._api.stream(self._token, method, path, data, span=span)

    @property
    def token(self) -> str:
        return self._token

    def client(self) -> Client:
        """A client for code that is not asynchronous, to be used in another thread."""
        return Client(self._api.url, self._token)

    async def person(self) -> Person:
        server = await self.get("server")
        return Person(server["user"], server["role"])


def job_path(name: str, *more: str) -> str:
    """The path of a job in the API."""
    return "/".join(["jobs", quote(name, safe=""), *more])


def file_path(job: str, path: str) -> str:
    """The path of one of its files; names that are not UTF-8 hold lone surrogates."""
    return job_path(job, "files", quote(path, errors="surrogateescape"))


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
