"""The agents' routes: hello, events, orders, logs, code. Each call also renews the node's lease.

They are an application of their own, because the agents' listener serves no other routes. It uses
plain Starlette, which is faster: a burst of jobs is a burst of these calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from allranks import clock
from allranks.core.distributions.topology import log_name, world
from allranks.core.lifecycle import agent_orders as orders_of
from allranks.core.lifecycle.validate_event import validate_event
from allranks.core.metrics import metric_lines
from allranks.core.packing import pack
from allranks.errors import NotFound, TooLarge, Unauthorized, UsageError
from allranks.events import Event, Kind
from allranks.server.dependencies import Services
from allranks.server.http.direct import Direct
from allranks.server.http.request_limits import LIMITS
from allranks.server.http.request_text import parse
from allranks.server.jobs.first_steps import APART, resumed_apart
from allranks.server.loop.stacks import MOST
from allranks.server.sessions.engine import parse_report
from allranks.statuses import TERMINAL, NodeState
from allranks.store.files.logs import Logs
from allranks.store.jobs.job_rows import JobRow
from allranks.store.metric_points import FEEDS, Source

if TYPE_CHECKING:
    from allranks.api.agents import (
        Acknowledgement,
        ChannelOrder,
        GuestOrder,
        HelloAnswer,
        Order,
        PaceAnswer,
        ProfileOrder,
        ReceivedAnswer,
    )

PREFIX = "/agent/v1"
_HINT = "agents of this version send no such request"

# Seconds of clock difference (or network delay) below which an agent's times are not corrected.
_CLOCKS_AGREE = 2.0
# The largest clock difference; corrected times must stay valid dates.
_AT_MOST = 1e10
# The most seconds that an answer waits for the order to a node that is ready.
_MOMENT = 0.1
# Bytes of a node's points in which every rank has some.
_FIRST_POINTS = 1 << 14
# Keys of event data that hold times.
_TIMES = ("failed_at", "ended_at", "until")


class Agent(NamedTuple):
    """A calling agent: the job and launch of its token, and the node in the URL."""

    job: str
    launch: int
    node: int


def create_app(more: Sequence[Route] = ()) -> Direct:
    """The application of the agents' routes and of ``more`` routes. Set its ``state.services`` and
    ``state.mlflow``, the MLflow proxy for ranks, before the first request."""
    routes = [
        Route(PREFIX + "/{node:int}/hello", hello, methods=["POST"]),
        Route(PREFIX + "/{node:int}/events", events, methods=["POST"]),
        Route(PREFIX + "/{node:int}/orders", orders),
        Route(PREFIX + "/{node:int}/stacks/{number:int}", stacks, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/profiles/{number:int}", profiles, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/still/{attempt:int}", still, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/pace/{attempt:int}", pace, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/logs/{attempt:int}/{rank:int}", logs, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/points/{attempt:int}/{feed}", points, methods=["PUT"]),
        Route(PREFIX + "/{node:int}/code/{digest}", code),
        Route(PREFIX + "/{node:int}/accounts/{datastore}", account),
        Mount("/mlflow", app=to_mlflow),
        *more,
    ]
    return Direct(routes)


async def hello(request: Request) -> Response:
    services, agent = who(request)
    row = await row_of(services, agent)
    job = row.record
    over = job.status in TERMINAL or agent.launch != job.launch or agent.node >= len(job.nodes)
    # One agent per node and launch: the events of a second one, started by an engine that retries,
    # would be ignored as duplicates.
    if over or job.nodes[agent.node].state is not NodeState.ABSENT:
        raise Unauthorized("this launch has ended for this node", hint="leave")
    own_disk = row.plan.task.sends_files or _says_own_disk(await request.body())
    await asyncio.to_thread(services.node_files.note_start, row, agent.node, own_disk)
    held = await asyncio.to_thread(services.working_folders.held, row, agent.node, own_disk)
    answer: HelloAnswer = {
        "attempt": job.attempt,
        "order": _order(services, row, agent, job.attempt, 0),
        "task": pack(row.plan.task),
        "state": services.states.is_known(row),
        "files": services.node_files.are_known(row),
        "home": None if own_disk else services.home_mark,
        "work": held,
        "clocks": row.plan.rules.clocks(services.clocks)._asdict(),
        "mlflow": services.tracking.rank_variables(row, services.auth)
        if services.tracking
        else None,
    }
    return JSONResponse(answer)


def _says_own_disk(body: bytes) -> bool:
    request: Any = parse(body) if body else {}  # agents of earlier versions send none
    return isinstance(request, dict) and request.get("own_disk") is True


async def events(request: Request) -> Response:
    services, agent = who(request)
    body = parse(await request.body())
    if not isinstance(body, list):
        raise UsageError("events must be a list", hint=_HINT)
    ahead = _clock_offset(request)
    received = [_in_server_time(validate_event(each), ahead) for each in body]
    for event in received:
        if event.node != agent.node or event.launch != agent.launch or not event.seq:
            raise UsageError(f"this agent may not send this {event.kind} event", hint=_HINT)
    row = await row_of(services, agent)
    _check_node(row, agent.node)
    accepted = orders_of.accepted(row.record, agent.node, agent.launch, received)
    if accepted:
        row = await services.event_batches.append(agent.job, accepted)
    if len(accepted) == len(received):
        last = max((event.seq for event in received), default=0)
    else:
        last = row.record.nodes[agent.node].seq
    answer: Acknowledgement = {"acknowledged": last}
    if len(row.record.nodes) == 1 and any(event.kind is Kind.READY for event in accepted):
        answer["order"] = await _first_order(services, agent, row.record.attempt)
    return JSONResponse(answer)


async def _first_order(services: Services, agent: Agent, attempt: int) -> Order:
    """The order of a job's only node, which is ready. It goes a moment later: a short job is over
    before its agent would have asked."""

    def goes() -> bool:
        latest = services.records.latest(agent.job)
        if latest is None:
            return True
        return orders_of.brief(latest.record, agent.node, agent.launch, attempt)["do"] != "wait"

    count = services.wakeups.count(agent.job)
    if not goes():
        with contextlib.suppress(asyncio.CancelledError):  # the server stops
            await services.wakeups.wait(agent.job, count, _MOMENT, goes)
    row = await row_of(services, agent)
    order = _order(services, row, agent, attempt, 0)
    if order["do"] == "go":
        order["places"] = pack(orders_of.places(row.record))
    return order


async def orders(request: Request) -> Response:
    """The current order. The answer is delayed while the agent already knows the order, for at most
    a third of a lease. With ``stacks``: the number of the last stack request that it has answered;
    ``channels`` and ``profiles``: those of the last channel and profile that it knows;
    ``guests``: the agents of other jobs that it has started."""
    services, agent = who(request)
    attempt = number_of(request, "attempt")
    held = request.query_params.get("known", "")
    answered = number_of(request, "stacks") if "stacks" in request.query_params else 0
    opened = number_of(request, "channels") if "channels" in request.query_params else None
    profiled = number_of(request, "profiles") if "profiles" in request.query_params else None
    guests = _guests_in(request)
    until = time.monotonic() + min(services.clocks.lease / 3, 10.0)
    while True:
        count = services.wakeups.count(agent.job)
        row = await row_of(services, agent)
        _check_node(row, agent.node)
        stacks = _stacks_for(services, row, attempt, answered)
        channels = _channels_for(services, row, agent, opened)
        profile = _profile_for(services, row, agent, profiled)
        due = services.sessions.orders(row, agent.node, guests)
        order_id = _order_id(services, row, agent, attempt)
        left = until - time.monotonic()
        is_news = _is_news(order_id, held) or stacks or channels or profile
        if is_news or due is not None or left <= 0:
            return _answer(services, row, agent, attempt, stacks, channels, profile, due)

        def concerns() -> bool:
            """Whether the news has changed what this agent has to do."""
            latest = services.records.latest(agent.job)
            return (
                latest is None
                or _is_news(_order_id(services, latest, agent, attempt), held)
                or _stacks_for(services, latest, attempt, answered) > 0
                or bool(_channels_for(services, latest, agent, opened))
                or _profile_for(services, latest, agent, profiled) is not None
                or services.sessions.orders(latest, agent.node, guests) is not None
            )

        try:
            await services.wakeups.wait(agent.job, count, left, concerns)
        except asyncio.CancelledError:  # the server stops
            return _answer(services, row, agent, attempt, stacks)


def _order_id(services: Services, row: JobRow, agent: Agent, attempt: int) -> str:
    """Differs between two orders that differ in what the agent has to do."""
    order = {"attempt": attempt, **orders_of.brief(row.record, agent.node, agent.launch, attempt)}
    words = ("do", "attempt", "why", "kill", "hold")
    return ".".join(str(order.get(word, "")) for word in words) + f".{services.heartbeats.name}"


def _is_news(order: str, held: str) -> bool:
    """Whether ``order`` tells something to an agent that holds the other one. To wait does
    not: it has done what it knows. Another server, the last word, is news."""
    waits = order.startswith("wait.") and held.rpartition(".")[2] == order.rpartition(".")[2]
    return order != held and not waits


def _stacks_for(services: Services, row: JobRow, attempt: int, answered: int) -> int:
    """The number of a stack request that the agent has not answered; 0 for none."""
    number = services.stacks.number(row)
    return number if number > answered and attempt == row.record.attempt else 0


def _channels_for(
    services: Services, row: JobRow, agent: Agent, opened: int | None
) -> list[ChannelOrder]:
    """The channels that the agent has to open; None: it is of an older version and opens none."""
    return [] if opened is None else services.channels.pending(row, agent.node, opened)


def _profile_for(
    services: Services, row: JobRow, agent: Agent, known: int | None
) -> ProfileOrder | None:
    """The profile that the agent has to take; None: it is of an older version and takes none."""
    return None if known is None else services.profiles.pending(row, agent.node, known)


def _guests_in(request: Request) -> dict[str, bool] | None:
    """The guests that the agent has named; None: it is of an older version and takes none."""
    text = request.query_params.get("guests")
    return None if text is None else parse_report(text)


def _order(services: Services, row: JobRow, agent: Agent, attempt: int, asked: int) -> Order:
    order: Order = {
        "attempt": attempt,
        "id": _order_id(services, row, agent, attempt),
        **orders_of.brief(row.record, agent.node, agent.launch, attempt),
        # After a restart of the server, the agent resends what this server lacks.
        "server": services.heartbeats.name,
        "heard": row.record.nodes[agent.node].seq,
    }
    # To be no order of its own, it is not in the id: agents see it with their next request.
    if services.live_views.are_open(agent.job):
        order["watched"] = True
    if asked:
        order["stacks"] = asked
    packed: Order = pack(order)
    return packed


def _answer(
    services: Services,
    row: JobRow,
    agent: Agent,
    attempt: int,
    stacks: int,
    channels: Sequence[ChannelOrder] = (),
    profile: ProfileOrder | None = None,
    guests: Sequence[GuestOrder] | None = None,
) -> Response:
    order = _order(services, row, agent, attempt, stacks)
    if channels:
        order["channels"] = [*channels]
    if profile is not None:
        order["profile"] = profile
    if guests is not None:
        order["guests"] = [*guests]
    body = json.dumps(order)
    if order["do"] == "go":
        # The same for all nodes of a gang: made for each, it takes seconds for hundreds.
        job = row.record
        body = f'{body[:-1]}, "places": {_places(services, row.name, job.attempt, job.went_at)}}}'
    return Response(body, media_type="application/json")


@lru_cache(maxsize=64)
def _places(services: Services, job: str, attempt: int, went_at: float | None) -> str:
    """The places of an attempt, which do not change once its gate has opened."""
    row = services.records.latest(job) or services.records.get(job)
    return json.dumps(pack(orders_of.places(row.record)))


async def stacks(request: Request) -> Response:
    """Receive the stacks of the node's ranks."""
    services, agent = who(request)
    body = await request.body()
    if len(body) > MOST:
        raise UsageError(
            f"{len(body)} bytes of stacks are more than the limit of {MOST}", hint=_HINT
        )
    number, answer = request.path_params["number"], parse(body)
    with readable():
        await run_in_threadpool(services.stacks.receive, agent.job, agent.node, number, answer)
    if services.hangs.waits_for(agent.job):
        services.loops.wake(agent.job)
    return JSONResponse({})


async def profiles(request: Request) -> Response:
    """Receive the profile of a rank."""
    services, agent = who(request)
    number, part = request.path_params["number"], parse(await request.body())
    with readable():
        await run_in_threadpool(services.profiles.receive, agent.job, agent.node, number, part)
    return JSONResponse({})


async def still(request: Request) -> Response:
    """Receive for how long the quiet ranks of the node have done nothing."""
    services, agent = who(request)
    attempt = request.path_params["attempt"]
    report = parse(await request.body())
    with readable():
        services.hangs.record(agent.job, agent.launch, attempt, agent.node, report)
    return JSONResponse({})


async def pace(request: Request) -> Response:
    """Receive when the ranks of the node have called their collectives."""
    services, agent = who(request)
    row, report = await row_of(services, agent), parse(await request.body())
    events: list[Event] = []
    if (agent.launch, request.path_params["attempt"]) == (row.record.launch, row.record.attempt):
        with readable():
            events = await run_in_threadpool(services.slow_ranks.record, row, agent.node, report)
    if events:
        await services.event_batches.append(agent.job, events)
    answer: PaceAnswer = {"suspects": services.slow_ranks.suspects(agent.job)}
    return JSONResponse(answer)


async def logs(request: Request) -> Response:
    services, agent = who(request)
    attempt, rank = request.path_params["attempt"], request.path_params["rank"]
    offset = number_of(request, "offset")
    age = number_of(request, "age") / 1000 if "age" in request.query_params else 0.0
    data = await request.body()
    size = await asyncio.to_thread(_append, services, agent.job, attempt, rank, offset, data, age)
    services.wakeups.notify(agent.job, output=True)
    answer: ReceivedAnswer = {"size": size}
    return JSONResponse(answer)


async def points(request: Request) -> Response:
    """Receive complete lines of one of the agent's files of points, from ``offset`` on."""
    services, agent = who(request)
    attempt, feed = request.path_params["attempt"], request.path_params["feed"]
    job = await row_of(services, agent)
    if feed not in FEEDS or not 1 <= attempt <= job.record.attempt:
        raise NotFound(f"no points named {feed!r} in attempt {attempt}", hint=_HINT)
    _check_node(job, agent.node)
    data = await request.body()
    if data.count(b"\n") > LIMITS.lines:
        raise TooLarge(f"more than {LIMITS.lines} lines of points", hint=_HINT)
    offset = number_of(request, "offset")
    source = Source(job.id, attempt, agent.node, feed)
    size = await run_in_threadpool(services.points.add_from_agent, source, offset, data)
    if b'"tags"' in data or b'"parameters"' in data:
        await run_in_threadpool(_annotate, services, job.id, data)
    if offset < _FIRST_POINTS and attempt == job.record.attempt:
        await _note_if_apart(services, job, agent.node)
    services.wakeups.notify(agent.job, output=True)
    answer: ReceivedAnswer = {"size": size}
    return JSONResponse(answer)


async def _note_if_apart(services: Services, job: JobRow, node: int) -> None:
    """Note once an attempt, with the node that sent points last, that its ranks resumed at
    different steps."""
    apart = await run_in_threadpool(resumed_apart, services.points, job)
    if apart and not await run_in_threadpool(services.records.notes, job, APART):
        note = job.event(Kind.NOTE, node=node, data={"about": APART, "message": apart})
        await services.event_batches.append(job.name, [note])


def _annotate(services: Services, job_id: int, data: bytes) -> None:
    """Record the tags and parameters in lines of a file of points."""
    tags: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for line in data.split(b"\n"):
        if b'"tags"' in line or b'"parameters"' in line:
            read = metric_lines.read(line)
            tags |= read.tags
            parameters |= read.parameters
    if tags:
        services.annotations.tag(job_id, tags)
    if parameters:
        services.annotations.add_parameters({job_id: parameters})


async def code(request: Request) -> Response:
    """The tar of the job's snapshot, concatenated from its chunks."""
    services, agent = who(request)
    digest = request.path_params["digest"]
    row = await row_of(services, agent)
    if digest != row.plan.task.code:
        raise NotFound("the job does not use this code", hint=_HINT)
    files = await run_in_threadpool(services.blobs.parts, digest)
    size = sum(file.stat().st_size for file in files)
    return StreamingResponse(_pieces(files), headers={"content-length": str(size)})


async def account(request: Request) -> Response:
    """The address and credentials of a datastore that the agent's own job uses."""
    services, agent = who(request)
    name = request.path_params["datastore"]
    row = await row_of(services, agent)
    if row.record.status in TERMINAL or agent.launch != row.record.launch:
        raise Unauthorized("this launch is over", hint="leave")
    task = row.plan.task
    mine = {each.datastore for each in task.inputs} | {output.datastore for output in task.outputs}
    if name not in mine:
        raise NotFound(f"the job does not use the datastore {name!r}", hint=_HINT)
    return JSONResponse(pack(await run_in_threadpool(services.datastores.account, name)))


async def to_mlflow(scope: Scope, receive: Receive, send: Send) -> None:
    await scope["app"].state.mlflow(scope, receive, send)


async def row_of(services: Services, agent: Agent) -> JobRow:
    """The agent's job; a live one is in memory, without a change of threads. Raises NotFound."""
    row = services.records.latest(agent.job)
    return await asyncio.to_thread(services.records.get, agent.job) if row is None else row


def _check_node(row: JobRow, node: int) -> None:
    if node >= len(row.record.nodes):
        raise NotFound(f"the job has no node {node}", hint=_HINT)


def number_of(request: Request, name: str) -> int:
    """A query parameter that is a non-negative integer below 10¹⁵. Raises UsageError."""
    text = request.query_params.get(name, "")
    if not text.isdecimal() or len(text) > 15:
        raise UsageError(f"{text[:40]!r} is not a number", where=name, hint=_HINT)
    return int(text)


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Raise UsageError for data of another shape."""
    try:
        yield
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError) as error:
        raise UsageError(f"malformed data: {type(error).__name__}", hint=_HINT) from None


def _pieces(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                yield piece


def who(request: Request) -> tuple[Services, Agent]:
    """Authenticate the agent and renew its lease. Raises Unauthorized."""
    services: Services = request.app.state.services
    caller = services.auth.agent(request.headers.get("authorization"))
    agent = Agent(caller.job, caller.launch, request.path_params["node"])
    services.heartbeats.record(*agent)
    return services, agent


def _clock_offset(request: Request) -> float:
    """Seconds by which the agent's clock is ahead of ours; 0 if it did not send its time."""
    text = request.query_params.get("now", "")
    try:
        ahead = float(text) - clock.now() if text else 0.0
    except ValueError:
        ahead = math.nan
    if not abs(ahead) < _AT_MOST:  # also false for NaN
        raise UsageError("`now` must be seconds since the epoch", hint=_HINT)
    return ahead


def _in_server_time(event: Event, ahead: float) -> Event:
    """The event with its times corrected by the agent's clock offset: times of different agents are
    compared to decide what came first."""
    if abs(ahead) < _CLOCKS_AGREE:
        return event
    times = {key: event.data[key] - ahead for key in _TIMES if event.data.get(key)}
    return event._replace(at=event.at - ahead, data={**event.data, **times})


def _append(
    services: Services, job: str, attempt: int, rank: int, offset: int, data: bytes, age: float
) -> int:
    processes = _world(services, job)
    newest = (services.records.latest(job) or services.records.get(job)).record.attempt
    if rank >= processes or not 1 <= attempt <= newest:
        raise NotFound(f"the job has no rank {rank} in attempt {attempt}", hint=_HINT)
    logs = Logs(services.home.jobs / job)
    limit = _log_limit(services, job)
    return logs.append(attempt, rank, log_name(rank, processes), offset, data, age, limit)


@lru_cache(maxsize=1024)
def _log_limit(services: Services, job: str) -> int | None:
    return services.records.get(job).plan.task.log_limit


@lru_cache(maxsize=1024)
def _world(services: Services, job: str) -> int:
    return world(services.records.get(job).plan.task)
