"""The route for where a job's processes are."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool

from allranks.errors import Conflict, NotFound
from allranks.server.dependencies import Services, services
from allranks.server.loop.stacks import running, shown
from allranks.statuses import TERMINAL

With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/api/v1")


@router.post("/jobs/{name}/stacks")
async def stacks(name: str, with_: With) -> dict[str, Any]:
    """Of a job whose ranks run: every process now, grouped by where it is. Of one that has ended:
    what was asked last while it ran, or found when it hung."""
    row = await run_in_threadpool(with_.records.get, name)
    if row.record.status in TERMINAL:
        kept = await run_in_threadpool(with_.stacks.kept, name)
        if kept is None:
            hint = "stacks are of jobs that run; one that hangs keeps its own: --hang-timeout"
            raise NotFound(f"{name} has ended and nobody had asked for its stacks", hint=hint)
        return {**kept, "live": False}
    if not list(running(row)):
        hint = f"it is {row.record.status}: allranks job show {name}"
        raise Conflict(f"no rank of {name} runs just now", hint=hint)
    answers = with_.stacks.ask(row)
    while not answers.over:
        count = with_.bell.count(name)
        if not answers.over:
            await with_.bell.wait(name, count, max(0.0, answers.until - time.monotonic()))
    told = await run_in_threadpool(with_.stacks.keep, name, answers)
    return {**await asyncio.to_thread(shown, told), "live": True}
