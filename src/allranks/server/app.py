"""The one place where everything is wired together."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

from allranks import __version__
from allranks.client import VERSION_HEADER
from allranks.engines.base import Engine
from allranks.engines.local import LocalEngine
from allranks.errors import AllranksError, NotFound, ServerError, UsageError
from allranks.server import agents, people
from allranks.server.auth import Auth
from allranks.server.bell import Bell
from allranks.server.loop import Loop
from allranks.server.services import Services
from allranks.settings import Clocks, Home
from allranks.store.blobs import Blobs
from allranks.store.db import database_error, open_database
from allranks.store.records import Records


def engines(home: Home) -> Mapping[str, Engine]:
    """The engines of a home by the name of their compute; the first is the default."""
    local = LocalEngine(home.engines / LocalEngine.name, home.nodes)
    return {local.name: local}


def create_app(
    home: Home,
    clocks: Clocks,
    url: str,
    quit: Callable[[], None],
    with_engines: Mapping[str, Engine] | None = None,
) -> FastAPI:
    """The server's application; its loop runs from the app's start to its end."""
    records = Records(open_database(home.database))
    found = with_engines or engines(home)
    auth, bell = Auth(home), Bell()
    loop = Loop(home, records, found, auth, bell, clocks, url)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        bell.belongs_to(asyncio.get_running_loop())
        loop.start()
        yield
        loop.stop()

    app = FastAPI(title="allranks", version=__version__, lifespan=lifespan)
    app.state.services = Services(
        home, clocks, records, Blobs(home.blobs), found, auth, bell, loop, quit
    )
    app.include_router(people.router)
    app.include_router(agents.router)
    _speak_our_errors(app)
    return app


def _speak_our_errors(app: FastAPI) -> None:
    def reply(error: AllranksError, status: int | None = None) -> JSONResponse:
        headers = {VERSION_HEADER: __version__}
        return JSONResponse(error.body(), status or error.http, headers=headers)

    @app.exception_handler(AllranksError)
    async def ours(_: Request, error: AllranksError) -> JSONResponse:
        return reply(error)

    @app.exception_handler(RequestValidationError)
    async def wrong_request(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return reply(UsageError(first["msg"], where=where, hint="see /docs of this server"))

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        said = NotFound(f"{request.method} {request.url.path}: {error.detail}", hint="see /docs")
        return reply(said, error.status_code)

    @app.exception_handler(DBAPIError)
    @app.exception_handler(sqlite3.Error)
    async def database(request: Request, error: Exception) -> JSONResponse:
        return reply(database_error(error, request.app.state.services.home.database))

    @app.exception_handler(OSError)
    async def system(_: Request, error: OSError) -> JSONResponse:
        hint = "look at the server's log: server.log in its home"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "make room on the disk of the server's home: what waits is sent again"
        said = f"the server could not do it: {error.strerror or error}"
        return reply(ServerError(said, where=error.filename, hint=hint), 507)
