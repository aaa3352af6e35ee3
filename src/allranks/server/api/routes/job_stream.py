"""Stream the logs and status of a job to any number of viewers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from allranks import clock
from allranks.core.lifecycle import phases
from allranks.server.dependencies import Services
from allranks.server.jobs import view
from allranks.server.jobs.stream import BEAT, StreamRequest, line, read_logs
from allranks.statuses import TERMINAL
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer, JobProgress, LogLine, Phase


async def follow(services: Services, name: str, request: StreamRequest) -> AsyncIterator[bytes]:
    """Lines of JSON. ``{"log": text, "attempt", "rank", "node", "offset"}`` is output, with bytes
    that are not UTF-8 as lone surrogates; ``{"job": …, "last": …}`` is sent at each change and as
    the last line."""
    positions = dict(request.positions or {})
    sent = ""
    while True:
        count = services.wakeups.count(name)
        row, reason, pieces = await asyncio.to_thread(_look, services, name, positions, request)
        ended = row.record.status in TERMINAL
        phase = phases.current(row.record, row.created_at)
        news = f"{row.record.status} {reason} {row.record.attempt} {phase}"
        if news != sent and not ended:
            progress: JobProgress = {
                **view.brief(row),
                "status_reason": reason or None,
                "phase": _phase(phase),
            }
            yield line({"job": progress, "last": False})
            sent = news
        while pieces:
            for piece in pieces:
                yield line(piece)
            pieces = await asyncio.to_thread(read_logs, services.home, row, positions, request)
        request = request.model_copy(update={"tail": None})  # what comes from now on is new
        if ended or not request.follow:
            note = await asyncio.to_thread(services.annotations.of, row.id)
            ended_job: JobAnswer = {**view.job(row, services.home, note)}
            yield line({"job": ended_job, "last": True})
            return
        await services.wakeups.wait(name, count, BEAT)
        if services.wakeups.count(name) == count:
            yield b"\n"


def _look(
    services: Services, name: str, positions: dict[str, int], request: StreamRequest
) -> tuple[JobRow, str, list[LogLine]]:
    """The job, the reason of its status, and the next pieces of its output."""
    row = services.records.get(name)
    reason = view.status_reason(row, services.home)
    return row, reason, read_logs(services.home, row, positions, request)


async def until_ended(services: Services, name: str, timeout: float) -> JobRow:
    """The job once it has ended, or after ``timeout`` seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout
    while True:
        count = services.wakeups.count(name)
        row = await asyncio.to_thread(services.records.get, name)
        remaining = until - loop.time()
        if row.record.status in TERMINAL or remaining <= 0:
            return row
        await services.wakeups.wait(name, count, remaining)


def _phase(current: phases.Current | None) -> Phase | None:
    """The phase with its duration: the viewer's clock may differ from ours."""
    if current is None:
        return None
    seconds = None if current.since is None else max(0.0, clock.now() - current.since)
    return {"name": current.phase, "seconds": seconds}
