"""Wire the server's parts together."""

from __future__ import annotations

import asyncio
import contextlib
import gc as gc_module
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Engine
from starlette.applications import Starlette

from allranks import settings
from allranks.core.job.sessions import ENGINE
from allranks.engines import pinned_code
from allranks.engines.base import Kind
from allranks.engines.registry import KINDS
from allranks.server.agent_api import (
    channel_routes,
    input_routes,
    routes,
    start_routes,
    state_routes,
)
from allranks.server.agent_api.home_mark import mark_home
from allranks.server.api import application as people
from allranks.server.api.routes.mlflow import Proxy
from allranks.server.api.routes.ui import UiProxy
from allranks.server.assets import components, datastores
from allranks.server.assets.components import Components
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import KIND, Environments
from allranks.server.assets.input_turns import InputTurns
from allranks.server.assets.model_versions import KIND as MODEL
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.assets.node_files import NodeFiles
from allranks.server.assets.state_folders import States
from allranks.server.assets.working_folders import WorkingFolders, work_limit
from allranks.server.auth.identity import Auth
from allranks.server.auth.tokens import Tokens
from allranks.server.authentication import Gate
from allranks.server.clusters.clusters import Clusters
from allranks.server.dependencies import Services
from allranks.server.endpoints.controller import Controller
from allranks.server.http.agents_listener import AgentsListener
from allranks.server.http.answer_cache import AnswerCache
from allranks.server.http.host_header_check import HostNames
from allranks.server.http.public_listener import PublicListener
from allranks.server.jobs.register_model import Models
from allranks.server.loop import mailbox
from allranks.server.loop.agent_variables import AgentVariables
from allranks.server.loop.channels import Channels
from allranks.server.loop.compaction_loop import CompactionLoop
from allranks.server.loop.disk_reserve import DiskReserve
from allranks.server.loop.event_batches import EventBatches
from allranks.server.loop.hang_watch import Hangs
from allranks.server.loop.heartbeats import Heartbeats
from allranks.server.loop.live_views import LiveViews
from allranks.server.loop.loop_services import LoopServices
from allranks.server.loop.loops import Loops
from allranks.server.loop.profiles import Profiles
from allranks.server.loop.slow_ranks import SlowRanks
from allranks.server.loop.stacks import Stacks
from allranks.server.loop.subscriptions import Subscriptions
from allranks.server.loop.wakeups import Wakeups
from allranks.server.mlflow import tracking
from allranks.server.parents.loop import Parents
from allranks.server.schedules.loop import ScheduleLoop
from allranks.server.sessions.engine import SessionEngine, session_kind
from allranks.server.sessions.idle import IdleSessions
from allranks.server.worker import Worker
from allranks.settings import Clocks, Home
from allranks.settings import database as database_of
from allranks.store.assets import Assets
from allranks.store.batch import BatchEndpoints
from allranks.store.computes import Computes
from allranks.store.database import check_small, open_database
from allranks.store.endpoints import Endpoints
from allranks.store.files.blobs import Blobs
from allranks.store.files.contents import Contents
from allranks.store.files.receiver import BlobReceiver
from allranks.store.files.trees import Trees
from allranks.store.files.uploads import Uploads
from allranks.store.jobs.annotations import Annotations
from allranks.store.jobs.children import Children
from allranks.store.jobs.records import Records
from allranks.store.jobs.step_results import StepResults
from allranks.store.key_values import Settings
from allranks.store.metric_points import Points
from allranks.store.schedules import Schedules
from allranks.store.secrets import Secrets

App = Callable[..., Any]

# Seconds after the start of the server, when the first requests have been answered.
_STARTED = 2.0
# Maximum threads for frequent calls that block; Starlette has as many of its own for the others.
_THREADS = 40


def create_app(
    home: Home,
    clocks: Clocks,
    url: str,
    kinds: Mapping[str, Kind] = KINDS,
    failed: Callable[[Exception], None] = lambda _: None,
) -> App:
    """The server's ASGI application, with people's routes, the agents' routes and MLflow. Its
    lifespan runs the loops and listeners; ``failed`` gets the error if they cannot start."""
    more = (state_routes, start_routes, input_routes, channel_routes)
    for_agents = routes.create_app([route for each in more for route in each.routes()])
    database = open_database(database_of(home))
    check_small(database)
    services = _services(home, database, clocks, url, kinds, for_agents)
    for_agents.state.services = services
    controller = Controller(services)
    chores: tuple[Worker, ...] = (
        Parents(services),
        ScheduleLoop(services),
        controller,
        IdleSessions(services.records, services.channels, services.sessions, services.loops),
        CompactionLoop(database),
        DiskReserve(home.root, database),
    )
    page = UiProxy(home, url, services.host_names)

    async def start() -> list[asyncio.Task[None]]:
        listener = services.agents_listener
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_THREADS))
        services.wakeups.attach(loop)
        controller.tunnels.attach(loop)
        addresses = _addresses(services)
        # Agents behind an address that is not open yet must not be taken for lost.
        listener.trouble.update(dict.fromkeys(addresses, "not open yet"))
        tasks = [
            asyncio.create_task(task)
            for task in (
                services.heartbeats.watch(),
                listener.keep_open(addresses),
                mailboxes.serve(),
            )
        ]
        await services.public_listener.reopen()
        services.loops.start()
        for chore in chores:
            chore.start()
        if settings.prefetches():
            services.clusters.prepare(services.clusters.first)
        if services.tracking is not None:
            services.tracking.mirror.start()
        loop.call_later(_STARTED, _spare_collector)
        # Before an upgrade replaces the code that this server began with.
        loop.call_later(_STARTED, loop.run_in_executor, None, pinned_code.pin, home.pinned)
        return tasks

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            tasks = await start()
        except Exception as error:
            failed(error)
            raise
        yield
        for task in tasks:
            task.cancel()
        await _stop(services, *chores, page)
        await asyncio.to_thread(database.dispose)

    for_people = people.create_app(lifespan)
    for_people.state.services = services
    for_agents.state.mlflow = Proxy(services, people=False)
    mailboxes = mailbox.Mailboxes(home, services.records, for_agents)

    services.public_listener.app = Gate(services, for_people, for_agents, Proxy(services), page)
    return services.public_listener.app


def _spare_collector() -> None:
    """Exempt what was imported from garbage collections, and enable these: see `__main__`."""
    gc_module.collect()
    gc_module.freeze()
    gc_module.enable()


async def _stop(services: Services, *others: Worker | UiProxy) -> None:
    await asyncio.gather(services.agents_listener.close(), services.public_listener.close())
    for chore in others:
        if isinstance(chore, Worker):
            chore.end()  # all at once: each may take a moment
    for service in (*others, services.loops, services.tracking):
        if service is not None:
            await asyncio.to_thread(service.stop)


def _addresses(services: Services) -> set[str]:
    """The addresses at which agents call: those of computes and of live jobs."""
    computes = services.clusters.known().computes.values()
    addresses = {compute.server_address or "" for compute in computes}
    addresses |= {row.plan.server_address for row in services.records.live()}
    return addresses - {"", mailbox.ADDRESS}


def _services(
    home: Home,
    database: Engine,
    clocks: Clocks,
    url: str,
    kinds: Mapping[str, Kind],
    for_agents: App,
) -> Services:
    settings = Settings(database)
    points = Points(database)
    records = Records(database)
    computes = Computes(database)
    assets = Assets(database, KIND)
    data = Assets(database, datastores.KIND)
    versions = ModelVersions(Assets(database, MODEL), Trees(home.models))
    blobs = Blobs(home.blobs)
    auth = Auth(home, Tokens(settings))
    host_names = HostNames()
    wakeups = Wakeups()
    subscriptions = Subscriptions()
    heartbeats = Heartbeats(clocks.lease)
    admission_lock = threading.Lock()
    agents_listener = AgentsListener(home, for_agents, heartbeats.reset)
    agent_variables = AgentVariables(home, auth, agents_listener, clocks, url)
    sessions = SessionEngine(records, wakeups, agent_variables)
    clusters = Clusters(home, computes, kinds, {ENGINE: session_kind(sessions)})
    stacks = Stacks(home, wakeups)
    states = States(home, records)
    hangs = Hangs(stacks)
    limit = work_limit()
    node_files = NodeFiles(home, records, blobs, limit)
    working_folders = WorkingFolders(home, blobs, limit)
    loops = Loops(
        LoopServices(
            home=home,
            records=records,
            points=points,
            clusters=clusters,
            agent_variables=agent_variables,
            wakeups=wakeups,
            subscriptions=subscriptions,
            heartbeats=heartbeats,
            clocks=clocks,
            data=data,
            hangs=hangs,
            states=states,
            node_files=node_files,
            working_folders=working_folders,
        )
    )
    return Services(
        home=home,
        home_mark=mark_home(home),
        clocks=clocks,
        records=records,
        children=Children(database),
        step_results=StepResults(database),
        contents=Contents(blobs),
        blobs=blobs,
        incoming=BlobReceiver(blobs),
        uploads=Uploads(home.uploads, blobs),
        computes=computes,
        clusters=clusters,
        assets=assets,
        environments=Environments(assets, settings),
        components=Components(Assets(database, components.KIND)),
        data=data,
        datastores=Datastores(home.data, settings, data, Secrets(settings, home.secrets), versions),
        points=points,
        models=Models(home, versions, blobs, records.answering, admission_lock),
        auth=auth,
        wakeups=wakeups,
        subscriptions=subscriptions,
        heartbeats=heartbeats,
        states=states,
        node_files=node_files,
        input_turns=InputTurns(),
        working_folders=working_folders,
        stacks=stacks,
        profiles=Profiles(home, wakeups),
        channels=Channels(wakeups),
        sessions=sessions,
        annotations=Annotations(database),
        settings=settings,
        schedules=Schedules(database),
        endpoints=Endpoints(database, settings, Secrets(settings, home.secrets, "endpoint.keys")),
        batch=BatchEndpoints(settings),
        hangs=hangs,
        slow_ranks=SlowRanks(clocks.pace),
        live_views=LiveViews(),
        rank_answers=AnswerCache(),
        agents_listener=agents_listener,
        public_listener=PublicListener(home, agents_listener, host_names),
        host_names=host_names,
        tracking=tracking.create(home, database, records, points),
        loops=loops,
        event_batches=EventBatches(records, loops.wake),
        admission_lock=admission_lock,
        gc_lock=threading.Lock(),
    )
