"""Routes for profiles of a job's ranks."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from allranks.api.jobs import ProfileAnswer, ProfileStopped
from allranks.core.distributions.topology import world
from allranks.errors import Conflict, NotFound
from allranks.server.dependencies import Connection, ServicesDep
from allranks.server.http.request_limits import Count
from allranks.server.loop.stacks import running
from allranks.statuses import TERMINAL

# Seconds between two looks whether the client waits.
_LOOK = 0.5


class ProfileRequest(BaseModel):
    """``ranks``: all if left out."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["auto", "python", "torch", "memory"] = "auto"
    seconds: Annotated[float, Field(ge=0.2, le=120)] = 5.0
    ranks: list[Count] = []


async def create(
    name: str, request: ProfileRequest, services: ServicesDep, connection: Connection
) -> ProfileAnswer:
    """Profile the ranks of a running job for some seconds; answered once it is judged. A client
    that goes ends it."""
    row = await run_in_threadpool(services.records.with_ranks, name)
    if row.record.status in TERMINAL:
        hint = "profile a job while it runs; its kept profiles: allranks job profile NAME --last"
        raise Conflict(f"{name} has ended", hint=hint)
    if not list(running(row)):
        hint = f"it is {row.record.status}: allranks job show {name}"
        raise Conflict(f"no rank of {name} is running", hint=hint)
    if unknown := [rank for rank in request.ranks if rank >= world(row.plan.task)]:
        hint = f"use ranks from 0 to {world(row.plan.task) - 1}"
        raise NotFound(f"{name} has no rank {unknown[0]}", hint=hint)
    kind = "python" if request.kind == "auto" else request.kind
    gathered = services.profiles.request(row, kind, request.seconds, request.ranks)
    while not gathered.over:
        count = services.wakeups.count(name)
        if not gathered.over:
            left = gathered.until - time.monotonic()
            await services.wakeups.wait(name, count, max(0.0, min(left, _LOOK)))
            if await connection.is_disconnected():
                services.profiles.stop(row)
            latest = services.records.latest(name)
            if latest is None or latest.record.status in TERMINAL:
                break
    return await run_in_threadpool(services.profiles.save, name, gathered)


def stop(name: str, services: ServicesDep) -> ProfileStopped:
    """End the profile that is being taken, if one is."""
    return {"stopped": services.profiles.stop(services.records.with_ranks(name))}


def show(name: str, services: ServicesDep) -> ProfileAnswer:
    """The newest profile of a job."""
    services.records.get(name)
    kept = services.profiles.saved(name)
    if kept is None:
        hint = f"take one while it runs: allranks job profile {name}"
        raise NotFound(f"no profile of {name} was taken", hint=hint)
    return kept
