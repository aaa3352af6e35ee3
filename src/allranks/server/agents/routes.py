"""The agents' door: hello, events, orders, logs, code. Each call is also a sign of life.

An application of its own, so that it can one day stand on an address where people's routes do
not; on plain Starlette, because a burst of jobs is a burst of these calls.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from allranks import clock
from allranks.errors import NotFound, Unauthorized, UsageError
from allranks.events import Event
from allranks.plan.distributions.topology import log_name, world
from allranks.plan.lifecycle import agent_orders as orders_of
from allranks.plan.lifecycle.validate_event import validate_event
from allranks.plan.plan import pack
from allranks.server.dependencies import Services
from allranks.server.http.error_responses import HANDLERS
from allranks.server.http.request_limits import Limited
from allranks.server.http.request_text import CheckedAddress, parse
from allranks.server.loop.stacks import MOST
from allranks.statuses import TERMINAL, NodeState
from allranks.store.files.logs import Logs
from allranks.store.job_rows import JobRow
from allranks.store.metric_points import FEEDS, Source

PREFIX = "/agent/v1"
_HINT = "agents of this version ask no such thing"

# Seconds that a clock may be off, or a question on its way, before the agent's times are shifted.
_CLOCKS_AGREE = 2.0
# A clock that counts from 1970 on, or further off: what is shifted by more cannot be shown.
_AT_MOST = 1e10
# Of what events tell beside their own time.
_TIMES = ("failed_at", "ended_at")


class Agent(NamedTuple):
    """Who calls: the job and launch its token names, the node it says it is."""

    job: str
    launch: int
    node: int


def create_app(more: Sequence[Route] = ()) -> Starlette:
    """Its ``state.services`` are to be set before it is asked, and ``state.mlflow``: what ranks of
    other hosts speak to. ``more``: routes that are written down elsewhere."""
    routes = [
        Route(PREFIX + "/{node:int}/hello", hello, methods=["POST"]),
        Route(PREFIX + "/{node:int}/events", events, methods=["POST"]),
        Route(PREFIX + "/{node:int}/orders", orders),
        Route(PREFIX + "/{node:int}/stacks/{number:int}", stacks, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/still/{attempt:int}", still, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/logs/{attempt:int}/{rank:int}", logs, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/points/{attempt:int}/{feed}", points, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/code/{digest}", code),
        Route(PREFIX + "/{node:int}/accounts/{datastore}", account),
        Mount("/mlflow", app=to_mlflow),
        *more,
    ]
    within = [Middleware(Limited), Middleware(CheckedAddress)]
    return Starlette(routes=routes, exception_handlers=HANDLERS, middleware=within)


async def hello(request: Request) -> Response:
    with_, agent = who(request)
    row = await run_in_threadpool(with_.records.get, agent.job)
    job = row.record
    over = job.status in TERMINAL or agent.launch != job.launch or agent.node >= len(job.nodes)
    # One agent a node and launch: a second one, started by an engine that tries again, would count
    # its events from 1 and not be heard.
    if over or job.nodes[agent.node].state is not NodeState.ABSENT:
        raise Unauthorized("this launch is over for this node", hint="leave")
    told = {
        "attempt": job.attempt,
        "task": pack(row.plan.task),
        "state": with_.states.is_known(row),
        "clocks": row.plan.rules.clocks(with_.clocks)._asdict(),
        "mlflow": with_.tracking.invitation(row, with_.auth) if with_.tracking else None,
    }
    return JSONResponse(told)


async def events(request: Request) -> Response:
    with_, agent = who(request)
    told = parse(await request.body())
    if not isinstance(told, list):
        raise UsageError("events come as a list", hint=_HINT)
    ahead = _ahead(request)
    said = [_by_our_clock(validate_event(each), ahead) for each in told]
    for event in said:
        if event.node != agent.node or event.launch != agent.launch or not event.seq:
            raise UsageError(f"a {event.kind} event that is not this agent's to tell", hint=_HINT)
    row = await run_in_threadpool(with_.records.get, agent.job)
    _of_its(row, agent.node)
    heeded = orders_of.accepted(row.record, agent.node, agent.launch, said)
    if heeded:
        row = await run_in_threadpool(with_.records.append, agent.job, heeded)
        with_.loops.wake(agent.job)
    if len(heeded) == len(said):
        return JSONResponse({"acknowledged": max((event.seq for event in said), default=0)})
    return JSONResponse({"acknowledged": row.record.nodes[agent.node].seq})


async def orders(request: Request) -> Response:
    """What to do now; held back while it is what the agent knows, a third of a lease at most. With
    ``stacks``: the number of a question that it has not answered yet."""
    with_, agent = who(request)
    attempt = number_of(request, "attempt")
    known = request.query_params.get("known", "")
    answered = number_of(request, "stacks") if "stacks" in request.query_params else 0
    until = time.monotonic() + min(with_.clocks.lease / 3, 10.0)
    while True:
        count = with_.bell.count(agent.job)
        row = with_.records.latest(agent.job)
        if row is None:
            row = await run_in_threadpool(with_.records.get, agent.job)
        _of_its(row, agent.node)
        order = {
            "attempt": attempt,
            **orders_of.order(row.record, agent.node, agent.launch, attempt),
        }
        # An agent that knew another server asks this one what it has.
        order["server"], order["heard"] = with_.pulse.name, row.record.nodes[agent.node].seq
        words = ("do", "attempt", "why", "kill")
        order["id"] = ".".join(str(order.get(word, "")) for word in words) + f".{with_.pulse.name}"
        if (number := with_.stacks.number(row)) > answered and attempt == row.record.attempt:
            return JSONResponse(pack({**order, "stacks": number}))
        left = until - time.monotonic()
        if order["id"] != known or left <= 0:
            return JSONResponse(pack(order))
        await with_.bell.wait(agent.job, count, left)


async def stacks(request: Request) -> Response:
    """Where the processes of its ranks are, as it was asked."""
    with_, agent = who(request)
    body = await request.body()
    if len(body) > MOST:
        raise UsageError(f"{len(body)} bytes are more than the stacks of a node", hint=_HINT)
    number, told = request.path_params["number"], parse(body)
    with readable():
        await run_in_threadpool(with_.stacks.take, agent.job, agent.node, number, told)
    if with_.hangs.waits_for(agent.job):
        with_.loops.wake(agent.job)
    return JSONResponse({})


async def still(request: Request) -> Response:
    """For how long those of its ranks that have been quiet have done nothing."""
    with_, agent = who(request)
    attempt = request.path_params["attempt"]
    told = parse(await request.body())
    with readable():
        with_.hangs.told(agent.job, agent.launch, attempt, agent.node, told)
    return JSONResponse({})


async def logs(request: Request) -> Response:
    with_, agent = who(request)
    attempt, rank = request.path_params["attempt"], request.path_params["rank"]
    offset, data = number_of(request, "offset"), await request.body()
    size = await run_in_threadpool(_append, with_, agent.job, attempt, rank, offset, data)
    with_.bell.ring(agent.job)
    return JSONResponse({"size": size})


async def points(request: Request) -> Response:
    """Whole lines of one of the agent's files of points, from ``offset`` on."""
    with_, agent = who(request)
    attempt, feed = request.path_params["attempt"], request.path_params["feed"]
    job = await run_in_threadpool(with_.records.get, agent.job)
    if feed not in FEEDS or not 1 <= attempt <= job.record.attempt:
        raise NotFound(f"agents have no points called {feed!r} of attempt {attempt}", hint=_HINT)
    _of_its(job, agent.node)
    data, offset = await request.body(), number_of(request, "offset")
    source = Source(job.id, attempt, agent.node, feed)
    size = await run_in_threadpool(with_.points.add_from_agent, source, offset, data)
    with_.bell.ring(agent.job)
    return JSONResponse({"size": size})


async def code(request: Request) -> Response:
    """A snapshot's chunks, one after the other: the whole tar."""
    with_, agent = who(request)
    digest = request.path_params["digest"]
    row = await run_in_threadpool(with_.records.get, agent.job)
    if digest != row.plan.task.code:
        raise NotFound("the job has no such code", hint=_HINT)
    files = await run_in_threadpool(with_.blobs.parts, digest)
    size = sum(file.stat().st_size for file in files)
    return StreamingResponse(_pieces(files), headers={"content-length": str(size)})


async def account(request: Request) -> Response:
    """What opens a datastore that the agent's own job moves data from or to, and no other."""
    with_, agent = who(request)
    name = request.path_params["datastore"]
    row = await run_in_threadpool(with_.records.get, agent.job)
    if row.record.status in TERMINAL or agent.launch != row.record.launch:
        raise Unauthorized("this launch is over", hint="leave")
    task = row.plan.task
    mine = {each.datastore for each in task.inputs} | {each.datastore for each in task.outputs}
    if name not in mine:
        raise NotFound(f"the job has nothing in a datastore {name!r}", hint=_HINT)
    return JSONResponse(pack(await run_in_threadpool(with_.datastores.account, name)))


async def to_mlflow(scope: Scope, receive: Receive, send: Send) -> None:
    await scope["app"].state.mlflow(scope, receive, send)


def _of_its(row: JobRow, node: int) -> None:
    if node >= len(row.record.nodes):
        raise NotFound(f"the job has no node {node}", hint=_HINT)


def number_of(request: Request, name: str) -> int:
    """A number of the address, which a file or a database can have."""
    text = request.query_params.get(name, "")
    if not text.isdecimal() or len(text) > 15:
        raise UsageError(f"{text[:40]!r} is not a number", where=name, hint=_HINT)
    return int(text)


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Raises UsageError where what was sent is of another shape."""
    try:
        yield
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError) as error:
        said = f"that cannot be taken in: {type(error).__name__}"
        raise UsageError(said, hint=_HINT) from None


def _pieces(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                yield piece


def who(request: Request) -> tuple[Services, Agent]:
    """The agent, by its token; marked as heard of. Raises Unauthorized."""
    with_: Services = request.app.state.services
    said = with_.auth.agent(request.headers.get("authorization"))
    agent = Agent(said.job, said.launch, request.path_params["node"])
    with_.pulse.heard(*agent)
    return with_, agent


def _ahead(request: Request) -> float:
    """How far the agent's clock is ahead of ours, where it tells what it shows; seconds."""
    text = request.query_params.get("now", "")
    try:
        ahead = float(text) - clock.now() if text else 0.0
    except ValueError:
        ahead = math.nan
    if not abs(ahead) < _AT_MOST:  # nor for what is no number
        raise UsageError("`now` is seconds since the epoch", hint=_HINT)
    return ahead


def _by_our_clock(event: Event, ahead: float) -> Event:
    """As it was when an agent whose clock is that far ahead of ours said it: what came first, and
    what is late, is decided by the times of all."""
    if abs(ahead) < _CLOCKS_AGREE:
        return event
    times = {key: event.data[key] - ahead for key in _TIMES if event.data.get(key)}
    return event._replace(at=event.at - ahead, data={**event.data, **times})


def _append(with_: Services, job: str, attempt: int, rank: int, offset: int, data: bytes) -> int:
    processes = _world(with_, job)
    newest = (with_.records.latest(job) or with_.records.get(job)).record.attempt
    if rank >= processes or not 1 <= attempt <= newest:
        raise NotFound(f"the job has no rank {rank} in attempt {attempt}", hint=_HINT)
    return Logs(with_.home.jobs / job).append(attempt, log_name(rank, processes), offset, data)


@lru_cache(maxsize=1024)
def _world(with_: Services, job: str) -> int:
    return world(with_.records.get(job).plan.task)
