"""Turn every exception of a route into an error response: message, place, hint."""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

import allranks
from allranks import folder_trees, settings
from allranks.core.text import repaired
from allranks.errors import AllranksError, NotFound, ServerError, UsageError
from allranks.server.arguments import SEE
from allranks.store.database import database_error

# The most characters of a text in an error response.
_LONGEST = 4000
# When this process imported the code.
_STARTED = time.time()


class Answer(JSONResponse):
    """A JSON response. Values that JSON cannot hold are repaired: an error may repeat a request's.
    See `core.text`."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except (RecursionError, ValueError):
            return super().render(repaired(content))


def reply(error: AllranksError, status: int | None = None) -> Response:
    return Answer(_shortened(error.body()), status or error.http)


def _shortened(value: Any) -> Any:
    """The error with long texts cut, which may repeat much of a request."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]} …"
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    return [_shortened(each) for each in value] if isinstance(value, list) else value


async def _ours(_: Request, error: Any) -> Response:
    return reply(error)


async def _wrong_value(_: Request, error: Any) -> Response:
    return reply(UsageError(f"invalid request: {error}", hint=SEE))


async def _no_route(request: Request, error: Any) -> Response:
    not_found = NotFound(f"{request.method} {request.url.path}: {error.detail}", hint=SEE)
    answer = reply(not_found, error.status_code)
    answer.headers.update(error.headers or {})  # of 405: which methods there are
    return answer


async def _gone(_: Request, __: Any) -> Response:
    # Nobody reads this. Without it, each client that hangs up leaves a stack trace in the log.
    return Response(status_code=400)


async def _database(request: Request, error: Any) -> Response:
    return reply(database_error(error, settings.database(request.app.state.services.home)))


async def _system(request: Request, error: Any) -> Response:
    hint, where = "see server.log in the server's home", error.filename
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free space on the disk of the server's home; agents retry by themselves"
        where = where or str(request.app.state.services.home.root)  # a write has no name
    message = f"the server failed: {error.strerror or error}"
    return reply(ServerError(message, where=where, hint=hint), 507)


def is_newer_than(moment: float) -> bool:
    """Whether the files of allranks are newer. Asked once something has failed, for it looks at
    each of them."""
    for folder, _, names in folder_trees.walk(Path(allranks.__file__).parent):
        files = (Path(folder, name) for name in names if name.endswith(".py"))
        if any(file.stat().st_mtime > moment for file in files):
            return True
    return False


async def _unforeseen(_: Request, error: Any) -> Response:
    # Starlette raises the error again after the response, so that its trace is logged.
    message = f"the server failed: {type(error).__name__}"
    hint = "see server.log in the server's home"
    is_late = isinstance(error, ImportError) and (error.name or "").startswith("allranks.")
    if is_late or is_newer_than(_STARTED):
        # Some of it was imported late, or the command is of the newer files.
        what = str(error) or type(error).__name__
        message = f"the code of allranks has changed since the server started: {what}"
        hint = "allranks server restart; jobs go on"
    return reply(ServerError(message, hint=hint), 500)


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    AllranksError: _ours,
    HTTPException: _no_route,
    ClientDisconnect: _gone,
    DBAPIError: _database,
    NoConnection: _database,
    sqlite3.Error: _database,
    OSError: _system,
    ValueError: _wrong_value,
    KeyError: _wrong_value,
    Exception: _unforeseen,
}
