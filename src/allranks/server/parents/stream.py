"""Stream the children of a job, and their output, to any number of viewers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from allranks.server.dependencies import Services
from allranks.server.jobs import view
from allranks.server.jobs.stream import BEAT, StreamRequest, line, read_logs
from allranks.server.parents import view as parents
from allranks.server.parents.pipeline.view import Steps
from allranks.server.parents.sweep.view import Trials
from allranks.statuses import TERMINAL
from allranks.store.jobs.children import ChildState
from allranks.store.jobs.job_rows import COMMAND, JobRow

if TYPE_CHECKING:
    from allranks.api.jobs import JobProgress, LogLine

# Seconds between two looks at the children of a live job.
_PACE = 0.25


async def follow_children(
    services: Services, name: str, request: StreamRequest
) -> AsyncIterator[bytes]:
    """Lines of JSON. ``{"job": …, "children": [changed ones], "last": …}`` is sent at each change
    and as the last line, ``{"log": text, "child": name, …}`` is output of a child, or of a child of
    one. A child's end comes after its output."""
    positions, sent, silent = dict(request.positions or {}), "", 0.0
    row = await run_in_threadpool(services.records.get, name)
    children: Trials | Steps = await run_in_threadpool(_viewer, row, services)
    while True:
        row = await run_in_threadpool(services.records.get, name)
        ended = row.record.status in TERMINAL
        changed = await run_in_threadpool(children.refresh)
        reason = await run_in_threadpool(view.status_reason, row, services.home)
        news = f"{row.record.status} {reason}"
        over = [number for number in changed if children.states[number].status in TERMINAL]
        live = [number for number in changed if children.states[number].status not in TERMINAL]
        if changed or news != sent:
            progress: JobProgress = {
                **view.brief(row),
                "status_reason": reason or None,
                **children.summary(),
            }
        if live or news != sent:
            shown = [children.shown(number) for number in live]
            yield line({"job": progress, "last": False, "children": [*shown]})
            sent, silent = news, 0.0
        if request.logs:
            leaves = await run_in_threadpool(_leaves, services, children.states, positions)
            for child, has_ended in leaves:
                while pieces := await run_in_threadpool(
                    _child_logs, services, child, positions, request.ranks
                ):
                    for piece in pieces:
                        yield line(piece)
                    silent = 0.0
                if has_ended:
                    positions[_done(child)] = 1
        if over:
            shown = [children.shown(number) for number in over]
            yield line({"job": progress, "last": False, "children": [*shown]})
            silent = 0.0
        if ended or not request.follow:
            whole = await run_in_threadpool(parents.job, row, services)
            yield line({"job": {**whole, **children.summary()}, "children": [], "last": True})
            return
        await asyncio.sleep(_PACE)
        silent += _PACE
        if silent >= BEAT:
            yield b"\n"
            silent = 0.0


def _viewer(row: JobRow, services: Services) -> Trials | Steps:
    return Steps(row, services) if row.type == "pipeline" else Trials(row, services)


def _leaves(
    services: Services, states: Mapping[int, ChildState], positions: Mapping[str, int]
) -> list[tuple[str, bool]]:
    """The names of the jobs with output among the children, and whether they have ended."""
    leaves: list[tuple[str, bool]] = []
    for number in sorted(states):
        child = states[number]
        if _done(child.name) in positions:
            continue
        if services.records.get(child.name).type == COMMAND:
            leaves.append((child.name, child.status in TERMINAL))
        else:
            below = {state.number: state for state in services.children.of(child.name)}
            leaves += _leaves(services, below, positions)
    return leaves


def _done(child: str) -> str:
    """The key that says that all output of a child was sent."""
    return f"{child}:done"


def _child_logs(
    services: Services, name: str, positions: dict[str, int], ranks: list[int] | None
) -> list[LogLine]:
    """The next pieces of a child's output; advances ``positions``."""
    row = services.records.get(name)
    own = {
        key.removeprefix(f"{name}:"): value
        for key, value in positions.items()
        if key.startswith(f"{name}:")
    }
    pieces = read_logs(services.home, row, own, StreamRequest(ranks=ranks))
    positions |= {f"{name}:{key}": value for key, value in own.items()}
    return [{**piece, "child": name} for piece in pieces]
