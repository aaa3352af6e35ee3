"""Routes for agents: hello, events, orders, logs, code. Each call is also a sign of life."""

from __future__ import annotations

import asyncio
import time
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool

from allranks.agent.outbox import load
from allranks.errors import NotFound, Unauthorized, UsageError
from allranks.events import FROM_AGENTS
from allranks.plan import policy
from allranks.plan.distributions import log_name, world
from allranks.plan.plan import pack
from allranks.server.auth import Speaker
from allranks.server.services import Services, services
from allranks.states import TERMINAL, NodeState
from allranks.store.logs import Logs


def speaker(node: int, request: Request) -> Speaker:
    """Who calls, by the token; marked as heard of."""
    with_ = services(request)
    said = with_.auth.agent(request.headers.get("authorization"))
    with_.loop.heard(said.job, said.launch, node)
    return said


Agent = Annotated[Speaker, Depends(speaker)]
With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/agent/v1/{node}", include_in_schema=False)


@router.post("/hello")
def hello(node: int, agent: Agent, with_: With) -> dict[str, Any]:
    row = with_.records.get(agent.job)
    job = row.record
    over = job.status in TERMINAL or agent.launch != job.launch
    if over or not 0 <= node < len(job.nodes) or job.nodes[node].state is NodeState.LOST:
        raise Unauthorized("this launch is over for this node", hint="leave")
    return {
        "attempt": job.attempt,
        "task": pack(row.plan.task),
        "clocks": with_.clocks._asdict(),
    }


@router.post("/events")
async def events(node: int, agent: Agent, with_: With, request: Request) -> dict[str, Any]:
    said = [load(each) for each in await request.json()]
    for event in said:
        mine = event.node == node and event.launch == agent.launch and event.seq > 0
        if not mine or event.kind not in FROM_AGENTS:
            raise UsageError(f"a {event.kind} event that is not this agent's to tell")
    if said:
        await run_in_threadpool(with_.records.hear, agent.job, said)
        with_.loop.wake(agent.job)
    return {"acknowledged": max((event.seq for event in said), default=0)}


@router.get("/orders")
async def orders(
    node: int, agent: Agent, with_: With, attempt: int, known: str = ""
) -> dict[str, Any]:
    """What to do now; held back while it is what the agent knows, a third of a lease at most."""
    until = time.monotonic() + with_.clocks.lease / 3
    while True:
        count = with_.bell.count(agent.job)
        row = await run_in_threadpool(with_.records.get, agent.job)
        if not 0 <= node < len(row.record.nodes):
            raise NotFound(f"the job has no node {node}")
        order = {"attempt": attempt, **policy.order(row.record, node, agent.launch, attempt)}
        order["id"] = f"{order['do']}.{order['attempt']}.{order.get('why', '')}"
        left = until - time.monotonic()
        if order["id"] != known or left <= 0:
            return {**pack(order), "id": order["id"]}
        await with_.bell.wait(agent.job, count, left)


@router.put("/logs/{attempt}/{rank}")
async def logs(
    node: int, attempt: int, rank: int, offset: int, agent: Agent, with_: With, request: Request
) -> dict[str, int]:
    data = await request.body()
    size = await asyncio.to_thread(_append, with_, agent.job, attempt, rank, offset, data)
    with_.bell.ring(agent.job)
    return {"size": size}


@router.get("/code/{digest}")
def code(digest: str, agent: Agent, with_: With) -> Response:
    return FileResponse(with_.blobs.open(digest))


def _append(with_: Services, job: str, attempt: int, rank: int, offset: int, data: bytes) -> int:
    processes = _world(with_, job)
    if not 0 <= rank < processes or attempt < 1 or offset < 0:
        raise NotFound(f"the job has no rank {rank}")
    return Logs(with_.home.jobs / job).append(attempt, log_name(rank, processes), offset, data)


@lru_cache(maxsize=1024)
def _world(with_: Services, job: str) -> int:
    return world(with_.records.get(job).plan.task)
