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
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from allranks.api import metrics as api
from allranks.api.common import Number
from allranks.core.metrics import names
from allranks.core.metrics.across_ranks import Track, band
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.content import Content
from allranks.server.http.request_limits import Count
from allranks.server.jobs import view
from allranks.server.timestamps import iso_time
from allranks.statuses import TERMINAL
from allranks.store.jobs.job_rows import JobRow
from allranks.store.metric_points import METRIC, RESOURCE, Point, Points, Series, number

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
    metric: list[str] | None = None,
    rank: list[Count] | None = None,
    attempt: Count | None = None,
    most: Most = None,
    begin: float = 0.0,
    end: float = math.inf,
) -> Annotated[Response, Content(api.MetricsAnswer)]:
    """Every series, or those of each ``metric`` and ``rank`` that are given, with its points,
    [step, seconds since the epoch, value], of the time from ``begin`` to ``end``. ``most`` limits
    the points of each: of neighbours the first, the last, the least, the greatest, and a NaN or
    infinity of each kind stay."""
    row = services.records.answering(name)
    # A key begins with the name; of ten thousand series most are left out here.
    several = [
        one
        for one in services.points.series(row.id, METRIC)
        if metric is None or any(key.startswith(one.name) for key in metric)
    ]
    selected = [
        (one, shown)
        for one, shown in zip(several, _named(several, row), strict=True)
        if (metric is None or one.name in metric or shown["key"] in metric)
        and (rank is None or one.rank in rank)
        and attempt in (None, one.attempt)
    ]
    return _streamed(
        (cast(api.Series, {**shown, "thinned": part.thinned}), map(_point, part.points))
        for one, shown in selected
        for part in [_read(services.points, one, most, begin, end)]
    )


class _Found(NamedTuple):
    points: Iterable[Point]
    thinned: bool


def _read(points: Points, one: Series, most: int | None, begin: float, end: float) -> _Found:
    """The points of a time span, at most about ``most``."""
    first, after = 0, one.length
    if begin > 0 or end < math.inf:
        first, after = points.between(one, begin, end)
    if most is None or after - first <= most:
        return _Found(points.read(one, first, until=after), False)
    return _Found(points.thinned(one, most, first, after), True)


def summary(
    name: str, services: ServicesDep, shape: bool = True, mean: bool = False
) -> Annotated[Response, Content(api.MetricsSummary)]:
    """Every series with its last point, minimum, maximum, and, unless ``shape`` is false, some
    values as a sparkline; with ``mean`` those of the mean of all ranks in the newest attempt, at
    the lowest rank, and none of the others."""
    row = services.records.answering(name)
    several = services.points.newest(row.id, METRIC)
    all_series = [series for series, _ in several]
    extremes = services.points.extremes(all_series)
    groups = _of_newest_attempt(all_series) if mean else [[series] for series in all_series]
    shapes = _shapes(services.points, groups if shape else [])
    rows: list[api.MetricSummary] = []
    for (series, last), which in zip(several, _named(all_series, row), strict=True):
        least, greatest = extremes.get(series.id, (None, None))
        values = shapes.get(series.id, [])
        rows.append({**which, "last": _point(last), "min": least, "max": greatest, "shape": values})
    answer: api.MetricsSummary = {"series": rows}
    return _json(answer)


def _shapes(points: Points, groups: Sequence[Sequence[Series]]) -> dict[int, list[Number]]:
    """Of each group the mean of its series, by the id of the first."""
    drawn = points.shapes([series for group in groups for series in group], _SHAPE)
    shapes = {}
    for first, *others in groups:
        steps, values = next(drawn)
        tracks = [Track(steps, values), *(Track(*next(drawn)) for _ in others)]
        if others and all(track.places for track in tracks):  # else the job was deleted meanwhile
            values = [math.nan if mean is None else mean for mean in band(tracks, _SHAPE).mean]
        shapes[first.id] = [number(value) for value in values]
    return shapes


def _of_newest_attempt(several: Sequence[Series]) -> list[list[Series]]:
    """Of each metric the series of its newest attempt, by rank."""
    by_name: dict[str, list[Series]] = {}
    for series in sorted(several, key=lambda series: (-series.attempt, series.rank or 0)):
        group = by_name.setdefault(series.name, [])
        if not group or group[0].attempt == series.attempt:
            group.append(series)
    return [*by_name.values()]


async def follow(
    name: str, services: ServicesDep, body: Follow
) -> Annotated[Response, Content(api.MetricsNews)]:
    """The points after ``positions``: returns when there are any, the job has ended, or ``wait``
    seconds have passed. The number of points is limited; call again for the rest."""
    until = asyncio.get_running_loop().time() + body.wait
    while True:
        count = services.wakeups.count(name)
        row = await run_in_threadpool(services.records.get, name)
        ended = row.record.status in TERMINAL
        news = await run_in_threadpool(_news, services, row, body.positions or {})
        left = until - asyncio.get_running_loop().time()
        if news or ended or left <= 0:
            answer: api.MetricsNews = {"series": news, "ended": ended}
            return _json(answer)
        await services.wakeups.wait(name, count, left)


def resources(
    name: str,
    services: ServicesDep,
    attempt: Count | None = None,
    most: Most = None,
    begin: float = 0.0,
    end: float = math.inf,
) -> Annotated[Response, Content(api.ResourcesAnswer)]:
    """Every series of resource use of nodes, GPUs and ranks, with points [seconds since the epoch,
    value] in percent, bytes, bytes per second, watts or degrees Celsius, of the time from ``begin``
    to ``end``; ``most`` limits them as those of metrics. `node_…` and network series cover the
    whole node, the others only the job."""
    row = services.records.answering(name)
    services.live_views.look(row.name)
    return _streamed(
        (
            cast(api.Series, {**_series(one), "thinned": part.thinned}),
            ((point.at, point.number) for point in part.points),
        )
        for one in services.points.series(row.id, RESOURCE, attempt)
        for part in [_read(services.points, one, most, begin, end)]
    )


def top(services: ServicesDep) -> Annotated[Response, Content(list[api.LiveJob])]:
    """The live jobs, each with its load and metrics."""
    live: list[api.LiveJob] = [
        {
            **view.brief(row),
            "status_reason": view.status_reason(row, services.home) or None,
            **measured(row, services),
        }
        for row in services.records.live()
    ]
    return _json(live)


def measured(row: JobRow, services: Services) -> api.Measured:
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


def peaks_of(row: JobRow, services: Services) -> list[api.NodeLoad]:
    """The greatest values of each node, its GPUs and ranks in the last attempt."""
    several = services.points.newest(row.id, RESOURCE, row.record.attempt)
    extremes = services.points.extremes([series for series, _ in several])
    greatest = [
        (series, point._replace(value=extremes.get(series.id, (0.0, point.value))[1]))
        for series, point in several
    ]
    return _load(greatest, row)


def _load(several: list[tuple[Series, Point]], row: JobRow) -> list[api.NodeLoad]:
    """The job's load on each node; ``node_load`` is that of the whole node."""
    nodes: dict[int, _Gathered] = {}
    for series, point in several:
        node = nodes.setdefault(series.node, _Gathered())
        node.at = max(node.at, point.at)
        if series.name.startswith(_NODE):
            node.whole[series.name.removeprefix(_NODE)] = point.number
        elif series.gpu is not None:
            node.gpus.setdefault(series.gpu, {})[series.name] = point.number
        elif series.rank is not None:
            node.ranks.setdefault(series.rank, {})[series.name] = point.number
        else:
            node.own[series.name] = point.number
    live = row.record.status not in TERMINAL
    places = [node.place for node in row.record.nodes]
    hosts = {number: place.host for number, place in enumerate(places) if place is not None}
    return [nodes[number].shown(number, hosts.get(number), live) for number in sorted(nodes)]


class _Gathered:
    """The last values of a node's series by name: of the job, of the whole node, of each GPU and
    of each rank."""

    def __init__(self) -> None:
        self.at = 0.0
        self.own: dict[str, Number] = {}
        self.whole: dict[str, Number] = {}
        self.gpus: dict[int, dict[str, Number]] = {}
        self.ranks: dict[int, dict[str, Number]] = {}

    def shown(self, number: int, host: str | None, live: bool) -> api.NodeLoad:
        own = self.own
        whole = self.whole | {name: own[name] for name in _NETWORK if name in own}
        # The names of series are the keys of the types: see `agent.monitoring.monitor`.
        return {
            **cast("api.Load", own),
            "node": number,
            "host": host,
            "at": iso_time(self.at),
            "node_load": cast("api.Load", whole),
            "gpus": [cast("api.GpuLoad", {"gpu": gpu, **load}) for gpu, load in self.gpus.items()],
            "ranks": [cast("api.RankLoad", {"rank": r, **load}) for r, load in self.ranks.items()],
            "now": live and time.time() - self.at < _OLD,
        }


def _named(several: Sequence[Series], row: JobRow) -> list[api.MetricSeries]:
    """The series as dicts, with a ``key`` that is unique by itself."""
    task = row.plan.task
    plain = {
        series.name
        for series in several
        if series.rank is not None and not names.names_rank(task, series.name, series.rank)
    }
    return [
        {**_series(series), "key": names.key(task, series.name, series.rank, plain)}
        for series in several
    ]


def _series(each: Series) -> api.Series:
    return cast(api.Series, each._asdict())


def _news(services: Services, row: JobRow, positions: Mapping[int, int]) -> list[api.MetricPoints]:
    news: list[api.MetricPoints] = []
    left = _AT_ONCE
    several = services.points.series(row.id, METRIC)
    for series, which in zip(several, _named(several, row), strict=True):
        since = positions.get(series.id, 0)
        points = [_point(point) for point in islice(services.points.read(series, since), left)]
        left -= len(points)
        if points:
            news.append({**which, "points": points})
    return news


def _point(point: Point) -> api.MetricPoint:
    return point.step, point.at, point.number


def _streamed(several: Iterable[tuple[api.Series, Iterable[tuple[Number, ...]]]]) -> Response:
    """Stream series with their points in chunks, since there may be millions."""

    def pieces() -> Iterator[str]:
        yield '{"series": ['
        for place, (shown, points) in enumerate(several):
            start = json.dumps({**shown, "points": []}).removesuffix("]}")
            yield f", {start}" if place else start
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
