"""Routes for metrics of jobs, resource use of their nodes, and the current load.

Numbers that JSON lacks are strings: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from allranks.plan.metrics import names
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.request_limits import Count
from allranks.server.jobs import view
from allranks.server.timestamps import iso_time
from allranks.statuses import TERMINAL
from allranks.store.jobs.job_rows import JobRow
from allranks.store.metric_points import METRIC, RESOURCE, Point, Series

Most = Annotated[int | None, Field(ge=1, lt=2**53)]

# The longest wait for new points, in seconds.
_BEAT = 5.0
# The most points of one `follow` answer, and points per chunk of a streamed answer.
_AT_ONCE, _PIECE = 50_000, 1000
# Points of a sparkline.
_SHAPE = 32
# Series of the whole node, including other processes, start with this prefix. The job's share of
# network traffic is unknown, so network series are also of the whole node.
_NODE = "node_"
_NETWORK = ("net_in", "net_out")
# Seconds after which a load is outdated; a point may cover thirty.
_OLD = 60.0


class Follow(BaseModel):
    """The number of known points by series id, and how many seconds to wait for news."""

    positions: dict[int, Count] | None = None
    wait: Annotated[float, Field(ge=0, le=_BEAT)] = _BEAT


def metrics(
    name: str,
    services: ServicesDep,
    metric: str | None = None,
    attempt: Count | None = None,
    most: Most = None,
    begin: float = 0.0,
    end: float = math.inf,
) -> Response:
    """Every series with its points, [step, seconds since the epoch, value], of the time from
    ``begin`` to ``end``; ``most`` limits the points of each, evenly spread."""
    row = services.records.answering(name)
    several = services.points.series(row.id, METRIC)

    def points(one: Series) -> Iterator[list[Any]]:
        all_of_it = begin <= 0 and end == math.inf
        since, until = (0, None) if all_of_it else services.points.between(one, begin, end)
        return map(_point, services.points.read(one, since, most, until))

    return _streamed(
        (told, points(each))
        for each, told in zip(several, _named(several, row), strict=True)
        if metric in (None, each.name, told["key"]) and attempt in (None, each.attempt)
    )


def summary(name: str, services: ServicesDep) -> Response:
    """Every series with its last point, minimum, maximum, and some values as a sparkline."""
    row = services.records.answering(name)
    several = services.points.newest(row.id, METRIC)
    extremes = services.points.extremes(each for each, _ in several)
    found = []
    named = _named([each for each, _ in several], row)
    for (each, last), which in zip(several, named, strict=True):
        least, greatest = extremes.get(each.id, (None, None))
        shape = [point.number for point in services.points.read(each, most=_SHAPE)]
        told = {"last": _point(last), "min": least, "max": greatest, "shape": shape}
        found.append({**which, **told})
    return _json({"series": found})


async def follow(name: str, services: ServicesDep, known: Follow) -> Response:
    """The points after ``positions``: returns when there are any, the job has ended, or ``wait``
    seconds have passed. The number of points is limited; call again for the rest."""
    until = asyncio.get_running_loop().time() + known.wait
    while True:
        count = services.wakeups.count(name)
        row = await run_in_threadpool(services.records.get, name)
        ended = row.record.status in TERMINAL
        found = await run_in_threadpool(_news, services, row, known.positions or {})
        left = until - asyncio.get_running_loop().time()
        if found or ended or left <= 0:
            return _json({"series": found, "ended": ended})
        await services.wakeups.wait(name, count, left)


def resources(
    name: str, services: ServicesDep, attempt: Count | None = None, most: Most = None
) -> Response:
    """Every series of resource use of nodes, GPUs and ranks, with points [seconds since the epoch,
    value] in percent, bytes, bytes per second, watts or degrees Celsius. `node_…` and network
    series cover the whole node, the others only the job."""
    row = services.records.answering(name)
    services.live_views.look(row.name)
    return _streamed(
        (each._asdict(), ([p.at, p.number] for p in services.points.read(each, most=most)))
        for each in services.points.series(row.id, RESOURCE, attempt)
    )


def top(services: ServicesDep) -> Response:
    """The live jobs, each with its load and metrics."""
    found = [{**view.brief(row), **measured(row, services)} for row in services.records.live()]
    return _json(found)


def measured(row: JobRow, services: Services) -> dict[str, Any]:
    """The last value of each metric, and the last load of each node with its GPUs and ranks."""
    services.live_views.look(row.name)
    several = services.points.newest(row.id, METRIC)
    named = _named([each for each, _ in several], row)
    return {
        "metrics": {
            which["key"]: last.number for which, (_, last) in zip(named, several, strict=True)
        },
        "load": _load(services.points.newest(row.id, RESOURCE, row.record.attempt), row),
    }


def _load(several: list[tuple[Series, Point]], row: JobRow) -> list[dict[str, Any]]:
    """The job's load on each node; ``node_load`` is that of the whole node."""
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
        node["node_load"] |= {name: node[name] for name in _NETWORK if name in node}
        now = row.record.status not in TERMINAL and time.time() - node["at"] < _OLD
        told = {**node, "at": iso_time(node["at"]), "now": now}
        found.append({**told, "gpus": [*node["gpus"].values()], "ranks": [*node["ranks"].values()]})
    return sorted(found, key=lambda each: int(each["node"]))


def _named(several: Sequence[Series], row: JobRow) -> list[dict[str, Any]]:
    """The series as dicts, with a ``key`` that is unique by itself."""
    printed = {each.name for each in several if each.rank is not None}
    return [
        {**each._asdict(), "key": names.key(row.plan.task, each.name, each.rank, printed)}
        for each in several
    ]


def _news(services: Services, row: JobRow, positions: Mapping[int, int]) -> list[dict[str, Any]]:
    found, left = [], _AT_ONCE
    several = services.points.series(row.id, METRIC)
    for each, which in zip(several, _named(several, row), strict=True):
        since = positions.get(each.id, 0)
        points = [_point(point) for point in islice(services.points.read(each, since), left)]
        left -= len(points)
        if points:
            found.append({**which, "points": points})
    return found


def _point(point: Point) -> list[Any]:
    return [point.step, point.at, point.number]


def _streamed(several: Iterable[tuple[dict[str, Any], Iterable[list[Any]]]]) -> Response:
    """Stream series with their points in chunks, since there may be millions."""

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
    # Not JSONResponse, which would copy and check a hundred thousand points first.
    return Response(json.dumps(data), media_type="application/json")
