"""How much a request may hold, and the numbers in it: nobody fills memory, or writes what cannot be
read again."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from allranks.errors import TooLarge
from allranks.server.http.error_responses import reply

# What is put together in memory: JSON, pieces of logs. An agent's line of points may be long.
JSON = 64 << 20
# What goes to the disk as it comes: a part of somebody's code, a file of a model.
_BLOB = 1 << 40
_BLOBS = "/api/v1/blobs/"

# A number that JSON, a database and a file know alike; one that is counted from 0.
Count = Annotated[int, Field(ge=0, lt=2**53)]
Number = Annotated[int, Field(gt=-(2**53), lt=2**53)]


class Limited:
    """An application that hears no more of a request than its route takes in."""

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
    most = _BLOB if scope["method"] == "PUT" and scope["path"].startswith(_BLOBS) else JSON
    told = Headers(scope=scope).get("content-length", "")
    if told.isdecimal() and (len(told) > 15 or int(told) > most):
        raise _too_large(most)
    came = 0

    async def counted() -> Any:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > most:
            # FastAPI lets no other kind through when it happens while it reads.
            raise HTTPException(413, _too_large(most).message)
        return message

    return counted


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"the request is larger than the {most >> 20} MiB that this route takes in",
        hint="data belongs into inputs, code into files: what is left out of `code` is not sent",
    )
