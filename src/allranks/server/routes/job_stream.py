"""Following a job: its ranks' output and its states as they come, for any number of viewers."""

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

# The longest a viewer hears nothing: it then gets an empty line and knows the server lives.
BEAT = 5.0


class Wanted(BaseModel):
    """``positions`` ({"1/0": 4096}: attempt/rank, bytes) says where the viewer left off, ``ranks``
    which to show, ``attempts`` likewise (-1: the newest). With ``follow`` false it ends with what
    there is."""

    positions: dict[str, Count] | None = None
    ranks: list[Number] | None = None
    attempts: list[Number] | None = None
    follow: bool = True


async def follow(with_: Services, name: str, wanted: Wanted) -> AsyncIterator[bytes]:
    """Lines of JSON. ``{"log": text, "attempt", "rank", "node", "offset"}`` carries output, bytes
    that are not UTF-8 as lone surrogates; ``{"job": …, "last": …}`` comes at each change and last.
    """
    positions = dict(wanted.positions or {})
    ranks, attempts = wanted.ranks, wanted.attempts
    told = ""
    while True:
        count = with_.bell.count(name)
        row = await run_in_threadpool(with_.records.get, name)
        ended = row.record.status in TERMINAL
        standing = view.status_reason(row)
        phase = phases.current(row.record, row.created_at)
        news = f"{row.record.status} {standing} {row.record.attempt} {phase}"
        if news != told and not ended:
            brief = view.brief(row) | {"status_reason": standing or None, "phase": _phase(phase)}
            yield _line({"job": brief, "last": False})
            told = news
        while pieces := await run_in_threadpool(_read, with_, row, positions, ranks, attempts):
            for piece in pieces:
                yield _line(piece)
        if ended or not wanted.follow:
            note = await run_in_threadpool(with_.annotations.of, row.id)
            yield _line({"job": view.job(row, with_.home, note), "last": True})
            return
        await with_.bell.wait(name, count, BEAT)
        if with_.bell.count(name) == count:
            yield b"\n"


async def until_ended(with_: Services, name: str, timeout: float) -> JobRow:
    """The job once it has ended, or as it is after ``timeout`` seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout
    while True:
        count = with_.bell.count(name)
        row = await run_in_threadpool(with_.records.get, name)
        left = until - loop.time()
        if row.record.status in TERMINAL or left <= 0:
            return row
        await with_.bell.wait(name, count, left)


def _phase(found: phases.Current | None) -> dict[str, Any] | None:
    """As viewers get it: for how long, because their clock may be another one."""
    if found is None:
        return None
    seconds = None if found.since is None else max(0.0, clock.now() - found.since)
    return {"name": found.phase, "seconds": seconds}


def _read(
    with_: Services,
    row: JobRow,
    positions: dict[str, int],
    ranks: list[int] | None,
    attempts: list[int] | None,
) -> list[dict[str, Any]]:
    """The next piece of each rank's output; moves ``positions`` on."""
    logs, found = Logs(with_.home.jobs / row.name), []
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
