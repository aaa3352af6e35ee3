"""Routes for what was measured: the metrics of a job, what its nodes used, and the load right now.

What JSON has no number for is text: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from allranks.plan.metrics import names
from allranks.server.dependencies import Services, services
from allranks.server.http.request_limits import Count
from allranks.server.jobs import view
from allranks.server.timestamps import when
from allranks.statuses import TERMINAL
from allranks.store.job_rows import JobRow
from allranks.store.metric_points import METRIC, RESOURCE, Point, Series

With = Annotated[Services, Depends(services)]
Most = Annotated[int | None, Field(ge=1, lt=2**53)]
router = APIRouter(prefix="/api/v1")

# Seconds that who follows is kept waiting for something new, at most.
_BEAT = 5.0
# The most points that who follows gets at once, and those of one piece of a longer answer.
_AT_ONCE, _PIECE = 50_000, 1000
# Points that draw a line of characters.
_SHAPE = 32
# How the names of series begin that are of the node with all that runs there, and those that every
# agent has; nobody knows which part of its network's is the job's.
_NODE = "node_"
_OF_NODE = ("cpu", "memory", "memory_total", "disk_read", "disk_write")
_NETWORK = ("net_in", "net_out")
# Seconds after which a load is no longer what is going on: a point may stand for thirty.
_OLD = 60.0


class Follow(BaseModel):
    """How much of each series, by its id, is known, and how many seconds to wait for news."""

    positions: dict[int, Count] | None = None
    wait: Annotated[float, Field(ge=0, le=_BEAT)] = _BEAT


@router.get("/jobs/{name}/metrics")
def metrics(
    name: str,
    with_: With,
    metric: str | None = None,
    attempt: Count | None = None,
    most: Most = None,
) -> Response:
    """Every series with its points, [step, seconds since the epoch, value]; ``most``: only about so
    many of each, evenly spread."""
    row = with_.records.get(name)
    several = with_.points.series(row.id, METRIC)
    return _streamed(
        (told, map(_point, with_.points.read(each, most=most)))
        for each, told in zip(several, _named(several, row), strict=True)
        if metric in (None, each.name, told["key"]) and attempt in (None, each.attempt)
    )


@router.get("/jobs/{name}/metrics/summary")
def summary(name: str, with_: With) -> Response:
    """Every series without its points: how many, the last, the least and the greatest, and some
    values that show its shape."""
    row = with_.records.get(name)
    several = with_.points.newest(row.id, METRIC)
    extremes = with_.points.extremes(each for each, _ in several)
    found = []
    named = _named([each for each, _ in several], row)
    for (each, last), which in zip(several, named, strict=True):
        least, greatest = extremes.get(each.id, (None, None))
        shape = [point.number for point in with_.points.read(each, most=_SHAPE)]
        told = {"last": _point(last), "min": least, "max": greatest, "shape": shape}
        found.append({**which, **told})
    return _json({"series": found})


@router.post("/jobs/{name}/metrics/follow")
async def follow(name: str, with_: With, known: Follow) -> Response:
    """What is new since ``positions``, once something is, or the job has ended, or some seconds
    have passed. No more than so many points at once: the rest comes when it is asked again."""
    until = asyncio.get_running_loop().time() + known.wait
    while True:
        count = with_.bell.count(name)
        row = await run_in_threadpool(with_.records.get, name)
        ended = row.record.status in TERMINAL
        found = await run_in_threadpool(_news, with_, row, known.positions or {})
        left = until - asyncio.get_running_loop().time()
        if found or ended or left <= 0:
            return _json({"series": found, "ended": ended})
        await with_.bell.wait(name, count, left)


@router.get("/jobs/{name}/resources")
def resources(name: str, with_: With, attempt: Count | None = None, most: Most = None) -> Response:
    """Every series of what nodes, GPUs and ranks used, with its points: [seconds since the epoch,
    value]. Percent, bytes, bytes a second, watts, degrees Celsius. Those named `node_…` and the
    network's are of the node with all that runs there, the others of the job."""
    row = with_.records.get(name)
    return _streamed(
        (each._asdict(), ([p.at, p.number] for p in with_.points.read(each, most=most)))
        for each in with_.points.series(row.id, RESOURCE, attempt)
    )


@router.get("/top")
def top(with_: With) -> Response:
    """The jobs that have not ended, each with its load and its metrics."""
    found = [{**view.brief(row), **measured(row, with_)} for row in with_.records.live()]
    return _json(found)


def measured(row: JobRow, with_: Services) -> dict[str, Any]:
    """Of a job: the last value of each metric, and of each node what it used last, with its GPUs
    and ranks."""
    several = with_.points.newest(row.id, METRIC)
    named = _named([each for each, _ in several], row)
    return {
        "metrics": {
            which["key"]: last.number for which, (_, last) in zip(named, several, strict=True)
        },
        "load": _load(with_.points.newest(row.id, RESOURCE, row.record.attempt), row),
    }


def _load(several: list[tuple[Series, Point]], row: JobRow) -> list[dict[str, Any]]:
    """Of each node what the job used there; ``node_load`` is what everything there used."""
    nodes: dict[int, dict[str, Any]] = {}
    for each, point in several:
        node = nodes.setdefault(
            each.node, {"node": each.node, "at": 0.0, "node_load": {}, "gpus": {}, "ranks": {}}
        )
        node["at"] = max(node["at"], point.at)
        place, name = node, each.name
        if name.startswith(_NODE):
            place, name = node["node_load"], name.removeprefix(_NODE)
        elif each.gpu is not None:
            place = node["gpus"].setdefault(each.gpu, {"gpu": each.gpu})
        elif each.rank is not None:
            place = node["ranks"].setdefault(each.rank, {"rank": each.rank})
        place[name] = point.number
    found = []
    for node in nodes.values():
        if not node["node_load"]:
            # An older agent told of the node alone.
            node["node_load"] = {name: node.pop(name) for name in _OF_NODE if name in node}
        node["node_load"] |= {name: node[name] for name in _NETWORK if name in node}
        now = row.record.status not in TERMINAL and time.time() - node["at"] < _OLD
        told = {**node, "at": when(node["at"]), "now": now}
        found.append({**told, "gpus": [*node["gpus"].values()], "ranks": [*node["ranks"].values()]})
    return sorted(found, key=lambda each: int(each["node"]))


def _named(several: Sequence[Series], row: JobRow) -> list[dict[str, Any]]:
    """Each with a ``key``, what it is called where a name is all there is."""
    printed = {each.name for each in several if each.rank is not None}
    return [
        {**each._asdict(), "key": names.key(row.plan.task, each.name, each.rank, printed)}
        for each in several
    ]


def _news(with_: Services, row: JobRow, positions: Mapping[int, int]) -> list[dict[str, Any]]:
    found, left = [], _AT_ONCE
    several = with_.points.series(row.id, METRIC)
    for each, which in zip(several, _named(several, row), strict=True):
        since = positions.get(each.id, 0)
        points = [_point(point) for point in islice(with_.points.read(each, since), left)]
        left -= len(points)
        if points:
            found.append({**which, "points": points})
    return found


def _point(point: Point) -> list[Any]:
    return [point.step, point.at, point.number]


def _streamed(several: Iterable[tuple[dict[str, Any], Iterable[list[Any]]]]) -> Response:
    """Series with their points, in pieces: there may be millions, and others are served, too."""

    def pieces() -> Iterator[str]:
        yield '{"series": ['
        for number, (told, points) in enumerate(several):
            start = json.dumps({**told, "points": []}).removesuffix("]}")
            yield f", {start}" if number else start
            rest, comma = iter(points), ""
            while piece := list(islice(rest, _PIECE)):
                yield comma + json.dumps(piece)[1:-1]
                comma = ", "
            yield "]}"
        yield "]}"

    return StreamingResponse(pieces(), media_type="application/json")


def _json(data: Any) -> Response:
    # By hand: a hundred thousand points need no model.
    return Response(json.dumps(data), media_type="application/json")
