"""The one place where everything is wired together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import Depends, FastAPI

from allranks.engines.base import Kind
from allranks.engines.registry import KINDS
from allranks.server.agents import routes, state_routes
from allranks.server.assets import datastores
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import KIND, Environments
from allranks.server.assets.model_versions import KIND as MODEL
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.assets.state_folders import States
from allranks.server.auth.identity import Auth
from allranks.server.auth.roles import allowed
from allranks.server.auth.tokens import Tokens
from allranks.server.clusters.clusters import Clusters
from allranks.server.dependencies import Services
from allranks.server.gate import Gate
from allranks.server.http.agents_listener import AgentsListener
from allranks.server.http.error_responses import HANDLERS, Answer
from allranks.server.http.host_header_check import HostNames
from allranks.server.http.public_listener import PublicListener
from allranks.server.http.request_limits import Limited
from allranks.server.http.request_text import CheckedJson
from allranks.server.jobs.register_model import Models
from allranks.server.loop import mailbox
from allranks.server.loop.agent_variables import AgentVariables
from allranks.server.loop.hangs import Hangs
from allranks.server.loop.heartbeats import Heartbeats
from allranks.server.loop.reconcile import Loops, Shared
from allranks.server.loop.stacks import Stacks
from allranks.server.loop.wakeups import Wakeups
from allranks.server.mlflow import tracking
from allranks.server.routes import computes as computes_routes
from allranks.server.routes import data as data_routes
from allranks.server.routes import (
    environments,
    gc,
    instance_types,
    job_files,
    job_history,
    jobs,
    metrics,
    models,
    state,
    tokens,
)
from allranks.server.routes import stacks as stack_routes
from allranks.server.routes.mlflow import Proxy
from allranks.settings import Clocks, Home
from allranks.settings import database as where_database
from allranks.store.annotations import Annotations
from allranks.store.assets import Assets
from allranks.store.computes import Computes
from allranks.store.database import open_database
from allranks.store.files.blobs import Blobs
from allranks.store.files.trees import Trees
from allranks.store.key_values import Settings
from allranks.store.metric_points import Points
from allranks.store.records import Records
from allranks.store.secrets import Secrets
from allranks.version import __version__

App = Callable[..., Any]

_ROUTES = (
    jobs,
    job_history,
    job_files,
    stack_routes,
    metrics,
    computes_routes,
    instance_types,
    environments,
    data_routes,
    models,
    state,
    gc,
    tokens,
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
    for_agents = routes.create_app(state_routes.routes())
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
        default_response_class=Answer,
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
    )
    for_people.state.services = with_
    for_people.add_middleware(CheckedJson)
    for_people.add_middleware(Limited)  # the last that is added runs first
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
    auth, bell, pulse = Auth(home, Tokens(settings)), Wakeups(), Heartbeats(clocks.lease)
    door, names = AgentsListener(home, for_agents, pulse.begin_anew), HostNames()
    invitation = AgentVariables(home, auth, door, clocks, url)
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
        front=PublicListener(home, door, names),
        names=names,
        tracking=tracking.begin(home, database, records, points),
        loops=loops,
        coming=coming,
        clearing=threading.Lock(),
    )
