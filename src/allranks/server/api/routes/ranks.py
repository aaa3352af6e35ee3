"""The route for one metric or resource of all ranks: a band, and who differs from the others."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from itertools import compress, groupby
from sys import float_info
from typing import Annotated, Literal, NamedTuple

from pydantic import Field
from starlette.responses import Response

from allranks.api import metrics as api
from allranks.api.common import Number
from allranks.core.metrics import across_ranks
from allranks.core.metrics.across_ranks import Track
from allranks.core.metrics.heat_map import heat_map
from allranks.errors import NotFound
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.content import Content
from allranks.server.http.request_limits import Count
from allranks.store.metric_points import METRIC, RESOURCE, Point, Series

# Values of one attempt that are no number and are named.
_ODD = 200
_DIGITS = 7


def ranks(
    name: str,
    services: ServicesDep,
    metric: str,
    kind: Literal["metric", "resource"] = "metric",
    attempt: Count | None = None,
    most: Annotated[int, Field(ge=1, le=10_000)] = 2000,
    begin: float = 0.0,
    end: float = math.inf,
    low: float = -math.inf,
    high: float = math.inf,
    cells: bool = False,
    heat: bool = False,
) -> Annotated[Response, Content(api.RanksAnswer)]:
    """One metric, or resource, of all ranks: mean, least and greatest at each of at most ``most``
    steps (of resources: times), and how each rank stands to the median. ``cells``: also the values
    of each rank, and not only of those that differ. ``heat``: a heat map of all in place of mean
    and range. ``begin``, ``end``: a time span; ``low``, ``high``: steps, of resources times."""
    row = services.records.answering(name)
    several = services.points.series(row.id, RESOURCE if kind == "resource" else METRIC, attempt)
    several = [series for series in several if series.name == metric]
    if not several:
        raise NotFound(f"{name} has no {kind} {metric[:80]!r}", hint=f"see `job show {name}`")
    if kind == "resource":  # a node's own use is not one of its ranks'
        parts = [series for series in several if series.rank is not None or series.gpu is not None]
        several = parts or several
    options = _Options(most, begin, end, low, high, cells, heat)
    # Points are only ever added; another job may have the number of one that was deleted.
    key = row.name, row.created_at, kind, tuple(several), options
    answer = services.rank_answers.get(key, lambda: _computed(services, kind, several, options))
    return Response(answer, media_type="application/json")


class _Options(NamedTuple):
    """What is asked for: see ``ranks``."""

    most: int
    begin: float
    end: float
    low: float
    high: float
    cells: bool
    heat: bool


def _computed(services: Services, kind: str, several: Sequence[Series], options: _Options) -> bytes:
    begin, end = options.begin, options.end
    timed = kind == "resource" or begin > 0 or end < math.inf
    columns = services.points.columns(several, timed)
    attempts: list[api.RanksOfAttempt] = []
    for number, group in groupby(sorted(several, key=_place), lambda series: series.attempt):
        members, tracks = [], []
        for series in group:
            if series.id in columns:
                steps, times, values = columns[series.id]
                places = times if kind == "resource" else steps
                track = (
                    _between(times, Track(places, values), begin, end)
                    if timed
                    else Track(places, values)
                )
                if options.low > -math.inf or options.high < math.inf:
                    track = _between(track.places, track, options.low, options.high)
                if track.places:
                    members.append(series)
                    tracks.append(track)
        if tracks:
            answer = _attempt(number, members, tracks, kind, options)
            if kind == "metric" and not options.heat:
                answer["times"] = _times(services, members, answer["places"])
            attempts.append(answer)
    answers: api.RanksAnswer = {"attempts": attempts}
    return json.dumps(answers).encode()


def _place(series: Series) -> tuple[int, ...]:
    none = -1
    rank = none if series.rank is None else series.rank
    return series.attempt, series.node, rank, none if series.gpu is None else series.gpu


def _between(times: Sequence[float], track: Track, begin: float, end: float) -> Track:
    inside = [begin <= at <= end for at in times]
    return Track([*compress(track.places, inside)], [*compress(track.values, inside)])


def _times(services: Services, members: Sequence[Series], places: Sequence[float]) -> list[float]:
    """When the rank with the most points was at each step."""
    longest = max(members, key=lambda series: series.length)
    columns = services.points.columns([longest])[longest.id]
    at = dict(zip(columns.steps, columns.times, strict=True))
    times, last = [], columns.times[0]
    for place in places:
        last = at.get(int(place), last)
        times.append(last)
    return times


def _attempt(
    number: int,
    members: Sequence[Series],
    tracks: Sequence[Track],
    kind: str,
    options: _Options,
) -> api.RanksOfAttempt:
    columns, rows, _ = across_ranks.grid(tracks, across_ranks.COLUMNS)
    band = across_ranks.NO_BAND if options.heat else across_ranks.band(tracks, options.most)
    # The last column ends where the last track does, and its step where the next would begin.
    end = max(max(columns[-1], track.places[-1]) for track in tracks)
    ends = [*columns[1:], end + (kind == "metric")]
    shown: list[api.RankStanding] = []
    for series, standing, row in zip(members, across_ranks.standings(rows), rows, strict=True):
        last = max(standing.begin, standing.begin + standing.longest - 1)
        answer: api.RankStanding = {
            "node": series.node,
            "rank": series.rank,
            "gpu": series.gpu,
            "difference": _short(standing.difference),
            "outlier": standing.outlier,
            "late": _short(standing.late),
            "longest": ends[last] - columns[standing.begin] if standing.longest else 0.0,
            "begin": columns[standing.begin],
            "worst": _short(standing.worst),
            "at": columns[standing.at],
            "cells": _shorts(row) if options.cells or standing.outlier else [],
        }
        shown.append(answer)
    return {
        "attempt": number,
        "places": band.places,
        "times": band.places,
        "mean": _shorts(band.mean),
        "least": _shorts(band.least),
        "greatest": _shorts(band.greatest),
        "least_track": band.least_track,
        "greatest_track": band.greatest_track,
        "odd": _odd(tracks),
        "columns": columns,
        "tracks": shown,
        "heat": _heat(rows) if options.heat else None,
    }


def _heat(rows: Sequence[across_ranks.Cells]) -> api.HeatMapAnswer:
    low, high, shades = heat_map(rows)
    return {"low": _short(low), "high": _short(high), "shades": b64encode(shades).decode()}


def _odd(tracks: Sequence[Track]) -> list[tuple[float, int, Number]]:
    points: list[tuple[float, int, Number]] = []
    for number, (places, values) in enumerate(tracks):
        if not math.isfinite(sum(values)):
            odd = (pair for pair in zip(places, values, strict=True) if not math.isfinite(pair[1]))
            points += [(place, number, Point(0, 0.0, value).number) for place, value in odd]
        if len(points) >= _ODD:
            break
    return points[:_ODD]


def _short(value: float) -> float:
    """Round to few digits. Infinity, which JSON lacks, becomes the largest number."""
    if not math.isfinite(value):
        value = math.copysign(float_info.max, value)
    rounded = float(f"{value:.{_DIGITS}g}")
    return rounded if math.isfinite(rounded) else value


def _shorts(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else _short(value) for value in values]
