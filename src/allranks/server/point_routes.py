"""Routes for what was measured: the metrics of a job, what its nodes used, and the load right now.

What JSON has no number for is text: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from allranks.server import shown
from allranks.server.limits import Count
from allranks.server.services import Services, services
from allranks.states import TERMINAL
from allranks.store.points import METRIC, RESOURCE, Point, Series
from allranks.store.records import JobRow

With = Annotated[Services, Depends(services)]
Most = Annotated[int | None, Field(ge=1, lt=2**53)]
router = APIRouter(prefix="/api/v1")

# Seconds that who follows is kept waiting for something new.
_BEAT = 5.0
# Points that draw a line of characters.
_SHAPE = 32
# Seconds after which a load is no longer what is going on: a point may stand for thirty.
_OLD = 60.0


class Known(BaseModel):
    """How many points a viewer has, by the series' id."""

    positions: dict[int, Count] | None = None


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
    found = [
        {**told, "points": [_point(point) for point in with_.points.read(each, most=most)]}
        for each, told in zip(several, _named(several), strict=True)
        if metric in (None, each.name, told["key"]) and attempt in (None, each.attempt)
    ]
    return _json({"series": found})


@router.get("/jobs/{name}/metrics/summary")
def summary(name: str, with_: With) -> Response:
    """Every series without its points: how many, the last, the least and the greatest, and some
    values that show its shape."""
    row = with_.records.get(name)
    several = with_.points.newest(row.id, METRIC)
    extremes = with_.points.extremes(each for each, _ in several)
    found = []
    named = _named([each for each, _ in several])
    for (each, last), which in zip(several, named, strict=True):
        least, greatest = extremes.get(each.id, (None, None))
        shape = [_number(point.value) for point in with_.points.read(each, most=_SHAPE)]
        told = {"last": _point(last), "min": least, "max": greatest, "shape": shape}
        found.append({**which, **told})
    return _json({"series": found})


@router.post("/jobs/{name}/metrics/follow")
async def follow(name: str, with_: With, known: Known) -> Response:
    """What is new since ``positions`` (points by the series' id), once something is, or the job has
    ended, or some seconds have passed."""
    positions = known.positions or {}
    until = asyncio.get_running_loop().time() + _BEAT
    while True:
        count = with_.bell.count(name)
        row = await run_in_threadpool(with_.records.get, name)
        ended = row.record.status in TERMINAL
        found = await run_in_threadpool(_news, with_, row, positions)
        left = until - asyncio.get_running_loop().time()
        if found or ended or left <= 0:
            return _json({"series": found, "ended": ended})
        await with_.bell.wait(name, count, left)


@router.get("/jobs/{name}/resources")
def resources(name: str, with_: With, attempt: Count | None = None, most: Most = None) -> Response:
    """Every series of what nodes, GPUs and ranks used, with its points: [seconds since the epoch,
    value]. Percent, bytes, bytes a second, watts, degrees Celsius."""
    row = with_.records.get(name)
    found = [
        {
            **each._asdict(),
            "points": [[at, _number(value)] for _, at, value in with_.points.read(each, most=most)],
        }
        for each in with_.points.series(row.id, RESOURCE, attempt)
    ]
    return _json({"series": found})


@router.get("/top")
def top(with_: With) -> Response:
    """The jobs that have not ended, each with its load and its metrics."""
    found = [{**shown.brief(row), **measured(row, with_)} for row in with_.records.live()]
    return _json(found)


def measured(row: JobRow, with_: Services) -> dict[str, Any]:
    """Of a job: the last value of each metric, and of each node what it used last, with its GPUs
    and ranks."""
    several = with_.points.newest(row.id, METRIC)
    named = _named([each for each, _ in several])
    return {
        "metrics": {
            which["key"]: _number(last.value)
            for which, (_, last) in zip(named, several, strict=True)
        },
        "load": _load(with_.points.newest(row.id, RESOURCE, row.record.attempt), row),
    }


def _load(several: list[tuple[Series, Point]], row: JobRow) -> list[dict[str, Any]]:
    nodes: dict[int, dict[str, Any]] = {}
    for each, point in several:
        node = nodes.setdefault(each.node, {"node": each.node, "at": 0.0, "gpus": {}, "ranks": {}})
        node["at"] = max(node["at"], point.at)
        place = node
        if each.gpu is not None:
            place = node["gpus"].setdefault(each.gpu, {"gpu": each.gpu})
        elif each.rank is not None:
            place = node["ranks"].setdefault(each.rank, {"rank": each.rank})
        place[each.name] = _number(point.value)
    found = []
    for node in nodes.values():
        now = row.record.status not in TERMINAL and time.time() - node["at"] < _OLD
        told = {**node, "at": shown.when(node["at"]), "now": now}
        found.append({**told, "gpus": [*node["gpus"].values()], "ranks": [*node["ranks"].values()]})
    return sorted(found, key=lambda each: int(each["node"]))


def _named(several: Sequence[Series]) -> list[dict[str, Any]]:
    """Each with a ``key``, what it is called where a name is all there is: with its rank, where
    several ranks tell the metric. What a script told by itself has no rank."""
    ranks: dict[str, set[int | None]] = {}
    for each in several:
        ranks.setdefault(each.name, set()).add(each.rank)
    return [{**each._asdict(), "key": _key(each, ranks[each.name])} for each in several]


def _key(one: Series, ranks: set[int | None]) -> str:
    if one.rank is None:
        return f"{one.name}/mlflow" if len(ranks) > 1 else one.name
    return f"{one.name}/rank_{one.rank}" if len(ranks - {None}) > 1 else one.name


def _news(with_: Services, row: JobRow, positions: dict[int, int]) -> list[dict[str, Any]]:
    found = []
    several = with_.points.series(row.id, METRIC)
    for each, which in zip(several, _named(several), strict=True):
        since = positions.get(each.id, 0)
        if each.length > since:
            points = [_point(point) for point in with_.points.read(each, since)]
            found.append({**which, "points": points})
    return found


def _point(point: Point) -> list[Any]:
    return [point.step, point.at, _number(point.value)]


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json(data: Any) -> Response:
    # By hand: a hundred thousand points need no model.
    return Response(json.dumps(data), media_type="application/json")
