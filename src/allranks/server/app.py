"""The one place where everything is wired together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import Depends, FastAPI

from allranks import __version__
from allranks.engines.base import Kind
from allranks.engines.kinds import KINDS
from allranks.server import (
    agents,
    clearing_routes,
    data_routes,
    datastores,
    environment_routes,
    history,
    mailbox,
    model_routes,
    people,
    point_routes,
    record_files,
    stack_routes,
    state_routes,
    states_for_people,
    token_routes,
)
from allranks.server import computes as computes_routes
from allranks.server.auth import Auth
from allranks.server.bell import Bell
from allranks.server.clusters import Clusters
from allranks.server.datastores import Datastores
from allranks.server.door import Door
from allranks.server.environments import KIND, Environments
from allranks.server.front import Front
from allranks.server.gate import Gate
from allranks.server.hangs import Hangs
from allranks.server.invitation import Invitation
from allranks.server.limits import Limited
from allranks.server.loop import Loops, Shared
from allranks.server.mlflow import tracking
from allranks.server.mlflow.proxy import Proxy
from allranks.server.model_versions import KIND as MODEL
from allranks.server.model_versions import ModelVersions
from allranks.server.models import Models
from allranks.server.names import Names
from allranks.server.pulse import Pulse
from allranks.server.replies import HANDLERS
from allranks.server.roles import allowed
from allranks.server.services import Services
from allranks.server.stacks import Stacks
from allranks.server.states import States
from allranks.server.tokens import Tokens
from allranks.settings import Clocks, Home
from allranks.settings import database as where_database
from allranks.store.annotations import Annotations
from allranks.store.assets import Assets
from allranks.store.blobs import Blobs
from allranks.store.computes import Computes
from allranks.store.db import open_database
from allranks.store.points import Points
from allranks.store.records import Records
from allranks.store.secrets import Secrets
from allranks.store.settings import Settings
from allranks.store.trees import Trees

App = Callable[..., Any]

_ROUTES = (
    people,
    history,
    record_files,
    stack_routes,
    point_routes,
    computes_routes,
    environment_routes,
    data_routes,
    model_routes,
    states_for_people,
    clearing_routes,
    token_routes,
)


def end_what_runs_here(home: Home) -> None:
    """End what a server that is gone has left running on this machine."""
    for kind in KINDS.values():
        if kind.end_all is not None:
            kind.end_all(home)


def create_app(
    home: Home,
    clocks: Clocks,
    url: str,
    kinds: Mapping[str, Kind] = KINDS,
) -> App:
    """The server's application: people's routes and the agents' door. Its loops run with it."""
    for_agents = agents.create_app(state_routes.routes())
    with_ = _services(home, clocks, url, kinds, for_agents)
    for_agents.state.services = with_

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        door = with_.door
        with_.bell.belongs_to(asyncio.get_running_loop())
        told = [each.server_address or "" for each in with_.clusters.known().there.values()]
        told += [row.plan.server_address for row in with_.records.live()]
        addresses = set(told) - {"", mailbox.ADDRESS}
        # As long as one is not open, nobody who should come in by it is missed.
        door.trouble.update(dict.fromkeys(addresses, "it is not open yet"))
        tasks = [
            asyncio.create_task(each)
            for each in (with_.pulse.watch(), door.keep_open(addresses), mailboxes.serve())
        ]
        await with_.front.open_again()
        with_.loops.start()
        if with_.tracking is not None:
            with_.tracking.mirror.start()
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(door.close(), with_.front.close())
        await asyncio.to_thread(with_.loops.stop)
        if with_.tracking is not None:
            await asyncio.to_thread(with_.tracking.stop)

    for_people = FastAPI(
        title="allranks",
        version=__version__,
        lifespan=lifespan,
        exception_handlers=HANDLERS,
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
    )
    for_people.state.services = with_
    for_people.add_middleware(Limited)
    for each in _ROUTES:
        for_people.include_router(each.router, dependencies=[Depends(allowed)])
    for_agents.state.mlflow = Proxy(with_, people=False)
    mailboxes = mailbox.Mailboxes(home, with_.records, for_agents)

    with_.front.app = Gate(with_, for_people, for_agents, Proxy(with_))
    return with_.front.app


def _services(
    home: Home, clocks: Clocks, url: str, kinds: Mapping[str, Kind], for_agents: App
) -> Services:
    database = open_database(where_database(home))
    records, computes = Records(database), Computes(database)
    assets = Assets(database, KIND)
    settings = Settings(database)
    known = Environments(assets, settings)
    data = Assets(database, datastores.KIND)
    versions = ModelVersions(Assets(database, MODEL), Trees(home.models))
    stores = Datastores(home.data, settings, data, Secrets(settings, home.secrets), versions)
    blobs, coming = Blobs(home.blobs), threading.Lock()
    found = Clusters(home, computes, kinds)
    auth, bell, pulse = Auth(home, Tokens(settings)), Bell(), Pulse(clocks.lease)
    door, names = Door(home, for_agents, pulse.begin_anew), Names()
    invitation = Invitation(home, auth, door, clocks, url)
    points = Points(database)
    stacks = Stacks(home, bell)
    hangs = Hangs(stacks)
    states = States(home, records)
    shared = home, records, points, found, invitation, bell, pulse, clocks, data, hangs, states
    loops = Loops(Shared(*shared))
    return Services(
        home=home,
        clocks=clocks,
        records=records,
        blobs=blobs,
        computes=computes,
        clusters=found,
        assets=assets,
        environments=known,
        data=data,
        datastores=stores,
        points=points,
        models=Models(home, versions, blobs, records.get, coming),
        auth=auth,
        bell=bell,
        pulse=pulse,
        states=states,
        stacks=stacks,
        annotations=Annotations(database),
        hangs=hangs,
        door=door,
        front=Front(home, door, names),
        names=names,
        tracking=tracking.begin(home, database, records, points),
        loops=loops,
        coming=coming,
        clearing=threading.Lock(),
    )
