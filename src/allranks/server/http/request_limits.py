"""Limits on the size of requests, and on the numbers in them."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import Field
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from allranks.errors import TooLarge
from allranks.server.http.error_responses import reply

_BLOBS = "/api/v1/blobs/"

# Integers that JSON, the database and file offsets can all hold.
Count = Annotated[int, Field(ge=0, lt=2**53)]
Number = Annotated[int, Field(gt=-(2**53), lt=2**53)]

# Marks a list whose items cost a look at the disk each.
FEW = Field(max_length=10_000)


class Limits(NamedTuple):
    """What one request to people's and agents' listeners may bring."""

    # Bytes of bodies that are held in memory: JSON, pieces of logs, metric points.
    body: int = 64 << 20
    # Bytes of bodies that are streamed to the disk: chunks of code, files of models.
    streamed: int = 1 << 40
    # Members of the lists and mappings of a JSON body: each is looked at.
    members: int = 3_000_000
    # Lines of points: as many as an agent's piece of a file, a megabyte, can have.
    lines: int = 1 << 20

    def check_members(self, body: bytes) -> None:
        """Raise TooLarge for JSON with too many members, before it is parsed."""
        if sum(map(body.count, (b",", b"[", b"{"))) > self.members:
            message = f"the request has more than {self.members} values"
            raise TooLarge(message, hint="send several requests")


LIMITS = Limits()


class Limited:
    """Middleware that refuses bodies larger than the route accepts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                receive = _limited(scope, receive)
            except TooLarge as error:
                await reply(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _limited(scope: Scope, receive: Receive) -> Receive:
    is_blob = scope["method"] == "PUT" and scope["path"].startswith(_BLOBS)
    most = LIMITS.streamed if is_blob else LIMITS.body
    length = Headers(scope=scope).get("content-length", "")
    if length.isdecimal() and (len(length) > 15 or int(length) > most):
        raise _too_large(most)
    received = 0

    async def counted() -> Any:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"the request is larger than the {most >> 20} MiB that this route accepts",
        hint="use inputs for data, and .amlignore to leave files out of `code`",
    )
