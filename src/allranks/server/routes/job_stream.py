"""Stream the logs and status of a job to any number of viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from allranks import clock
from allranks.plan.lifecycle import phases
from allranks.server.dependencies import Services
from allranks.server.http.request_limits import Count, Number
from allranks.server.jobs import view
from allranks.statuses import TERMINAL
from allranks.store.files.logs import Logs
from allranks.store.job_rows import JobRow

# Seconds without news after which a viewer gets an empty line, as a heartbeat.
BEAT = 5.0


class Wanted(BaseModel):
    """``positions`` ({"1/0": 4096}: attempt/rank, bytes) are the bytes the viewer already has;
    ``ranks`` and ``attempts`` (-1: the newest) filter. Without ``follow`` the stream ends after
    the existing output."""

    positions: dict[str, Count] | None = None
    ranks: list[Number] | None = None
    attempts: list[Number] | None = None
    follow: bool = True


async def follow(services: Services, name: str, wanted: Wanted) -> AsyncIterator[bytes]:
    """Lines of JSON. ``{"log": text, "attempt", "rank", "node", "offset"}`` is output, with bytes
    that are not UTF-8 as lone surrogates; ``{"job": …, "last": …}`` is sent at each change and as
    the last line."""
    positions = dict(wanted.positions or {})
    ranks, attempts = wanted.ranks, wanted.attempts
    sent = ""
    while True:
        count = services.wakeups.count(name)
        row = await run_in_threadpool(services.records.get, name)
        ended = row.record.status in TERMINAL
        reason = view.status_reason(row)
        phase = phases.current(row.record, row.created_at)
        news = f"{row.record.status} {reason} {row.record.attempt} {phase}"
        if news != sent and not ended:
            brief = view.brief(row) | {"status_reason": reason or None, "phase": _phase(phase)}
            yield _line({"job": brief, "last": False})
            sent = news
        while pieces := await run_in_threadpool(_read, services, row, positions, ranks, attempts):
            for piece in pieces:
                yield _line(piece)
        if ended or not wanted.follow:
            note = await run_in_threadpool(services.annotations.of, row.id)
            yield _line({"job": view.job(row, services.home, note), "last": True})
            return
        await services.wakeups.wait(name, count, BEAT)
        if services.wakeups.count(name) == count:
            yield b"\n"


async def until_ended(services: Services, name: str, timeout: float) -> JobRow:
    """The job once it has ended, or after ``timeout`` seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout
    while True:
        count = services.wakeups.count(name)
        row = await run_in_threadpool(services.records.get, name)
        remaining = until - loop.time()
        if row.record.status in TERMINAL or remaining <= 0:
            return row
        await services.wakeups.wait(name, count, remaining)


def _phase(found: phases.Current | None) -> dict[str, Any] | None:
    """The phase with its duration: the viewer's clock may differ from ours."""
    if found is None:
        return None
    seconds = None if found.since is None else max(0.0, clock.now() - found.since)
    return {"name": found.phase, "seconds": seconds}


def _read(
    services: Services,
    row: JobRow,
    positions: dict[str, int],
    ranks: list[int] | None,
    attempts: list[int] | None,
) -> list[dict[str, Any]]:
    """The next piece of each rank's output; advances ``positions``."""
    logs, found = Logs(services.home.jobs / row.name), []
    for attempt, rank, node, file in view.log_files(row):
        newest = attempt - row.record.attempt - 1  # -1 is the newest, -2 the one before
        if ranks is not None and rank not in ranks:
            continue
        if attempts is not None and attempt not in attempts and newest not in attempts:
            continue
        key = f"{attempt}/{rank}"
        offset = positions.get(key, 0)
        data = logs.read(attempt, file, offset)
        if data:
            positions[key] = offset + len(data)
            found.append(
                {
                    "log": data.decode(errors="surrogateescape"),
                    "attempt": attempt,
                    "rank": rank,
                    "node": node,
                    "offset": positions[key],
                }
            )
    return found


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"
