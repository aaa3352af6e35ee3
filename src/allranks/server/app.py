"""The one place where everything is wired together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from allranks import __version__
from allranks.engines.base import Engine
from allranks.engines.local import LocalEngine
from allranks.errors import Unauthorized
from allranks.server import agents, people
from allranks.server.auth import Auth
from allranks.server.bell import Bell
from allranks.server.loop import Loop
from allranks.server.replies import HANDLERS
from allranks.server.services import Services
from allranks.settings import Clocks, Home
from allranks.store.blobs import Blobs
from allranks.store.db import open_database
from allranks.store.records import Records

App = Callable[..., Any]


def engines(home: Home) -> Mapping[str, Engine]:
    """The engines of a home by the name of their compute; the first is the default."""
    local = LocalEngine(home.engines / LocalEngine.name, home.nodes)
    return {local.name: local}


def end_what_runs_here(home: Home) -> None:
    """End what a server that is gone has left running on this machine."""
    LocalEngine(home.engines / LocalEngine.name, home.nodes).stop_all()


def create_app(
    home: Home,
    clocks: Clocks,
    url: str,
    with_engines: Mapping[str, Engine] | None = None,
) -> App:
    """The server's application: people's routes and the agents' door. Its loop runs with it."""
    records = Records(open_database(home.database))
    found = with_engines or engines(home)
    auth, bell = Auth(home), Bell()
    loop = Loop(home, records, found, auth, bell, clocks, url)
    services = Services(home, clocks, records, Blobs(home.blobs), found, auth, bell, loop)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        bell.belongs_to(asyncio.get_running_loop())
        loop.start()
        yield
        loop.stop()

    for_people = FastAPI(
        title="allranks", version=__version__, lifespan=lifespan, exception_handlers=HANDLERS
    )
    for_people.state.services = services
    for_people.include_router(people.router)
    for_agents = agents.create_app(services)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(agents.PREFIX):
            # Before the body is read: who has no token does not fill our memory.
            refused = scope["type"] == "http" and _refused(auth, scope)
            await (refused or for_people)(scope, receive, send)
        else:
            await for_agents(scope, receive, send)

    return app


def _refused(auth: Auth, scope: Any) -> Any:
    """The answer to a person without the token, None for one who has it."""
    try:
        auth.person(Headers(scope=scope).get("authorization"))
    except Unauthorized as error:
        return JSONResponse(error.body(), error.http)
    return None
