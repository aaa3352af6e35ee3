"""Stream the trials of a sweep, and their output, to any number of viewers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool

from allranks.server.dependencies import Services
from allranks.server.jobs import view
from allranks.server.jobs.stream import BEAT, Wanted, line, read_logs
from allranks.server.parents.view import Trials
from allranks.statuses import TERMINAL

# Seconds between two looks at the children of a live job.
_PACE = 0.25


async def follow_children(services: Services, name: str, wanted: Wanted) -> AsyncIterator[bytes]:
    """Lines of JSON. ``{"job": …, "trials": [changed ones], "last": …}`` is sent at each change and
    as the last line, ``{"log": text, "child": name, …}`` is output of a trial."""
    positions, sent, silent = dict(wanted.positions or {}), "", 0.0
    row = await run_in_threadpool(services.records.get, name)
    trials = await run_in_threadpool(Trials, row, services)
    while True:
        row = await run_in_threadpool(services.records.get, name)
        ended = row.record.status in TERMINAL
        changed = await run_in_threadpool(trials.refresh)
        news = f"{row.record.status} {view.status_reason(row)}"
        if changed or news != sent:
            brief = view.brief(row) | {"status_reason": view.status_reason(row) or None}
            shown = {"job": {**brief, **trials.summary()}, "last": False}
            yield line({**shown, "trials": [trials.shown(each) for each in changed]})
            sent, silent = news, 0.0
        if wanted.logs:
            for number in sorted(trials.states):
                child = trials.states[number]
                done = f"{child.name}:done"
                if done in positions:
                    continue
                over = child.status in TERMINAL
                while pieces := await run_in_threadpool(
                    _child_logs, services, child.name, positions
                ):
                    for piece in pieces:
                        yield line(piece)
                    silent = 0.0
                if over:
                    positions[done] = 1
        if ended or not wanted.follow:
            note = await run_in_threadpool(services.annotations.of, row.id)
            whole = view.job(row, services.home, note)
            yield line({"job": {**whole, **trials.summary()}, "trials": [], "last": True})
            return
        await asyncio.sleep(_PACE)
        silent += _PACE
        if silent >= BEAT:
            yield b"\n"
            silent = 0.0


def _child_logs(services: Services, name: str, positions: dict[str, int]) -> list[dict[str, Any]]:
    """The next pieces of a child's output; advances ``positions``."""
    row = services.records.get(name)
    own = {
        key.removeprefix(f"{name}:"): value
        for key, value in positions.items()
        if key.startswith(f"{name}:")
    }
    pieces = read_logs(services.home, row, own, None, None)
    positions |= {f"{name}:{key}": value for key, value in own.items()}
    return [{**piece, "child": name} for piece in pieces]
