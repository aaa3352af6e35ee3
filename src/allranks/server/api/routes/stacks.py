"""The route for stacks of a job's processes."""

from __future__ import annotations

import asyncio
import time

from starlette.concurrency import run_in_threadpool

from allranks.api.jobs import StacksAnswer
from allranks.errors import Conflict, NotFound
from allranks.server.dependencies import ServicesDep
from allranks.server.loop.stacks import running, shown
from allranks.statuses import TERMINAL


async def stacks(name: str, services: ServicesDep) -> StacksAnswer:
    """The current stacks of a running job, grouped; of an ended job the last saved stacks,
    requested by a user or taken when it hung."""
    row = await run_in_threadpool(services.records.with_ranks, name)
    if row.record.status in TERMINAL:
        kept = await run_in_threadpool(services.stacks.saved, name)
        if kept is None:
            hint = "request them while a job runs; with --hang-timeout a hanging job saves them"
            raise NotFound(f"{name} has ended, and no stacks were saved", hint=hint)
        return {**kept, "live": False}
    if not list(running(row)):
        hint = f"it is {row.record.status}: allranks job show {name}"
        raise Conflict(f"no rank of {name} is running", hint=hint)
    answers = services.stacks.request(row)
    while not answers.over:
        count = services.wakeups.count(name)
        if not answers.over:
            await services.wakeups.wait(name, count, max(0.0, answers.until - time.monotonic()))
    data = await run_in_threadpool(services.stacks.save, name, answers)
    grouped = await asyncio.to_thread(shown, data)
    return {**grouped, "live": True}
