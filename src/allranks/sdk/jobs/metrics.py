"""The metrics of a job: points by name, and new points as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from allranks.api import routes
from allranks.core.metrics.across_ranks import mean
from allranks.http_client import Client
from allranks.sdk.jobs.follow import answered

if TYPE_CHECKING:
    from allranks.api.common import Number
    from allranks.api.metrics import MetricPoints, MetricsNews, MetricSummary


class LoggedPoint(TypedDict):
    """``timestamp``: milliseconds since the epoch. ``value`` is a text where it is not finite."""

    step: int
    timestamp: int
    value: Number
    attempt: int


def by_name(several: Iterable[MetricPoints]) -> dict[str, list[LoggedPoint]]:
    """``{metric: [{"step", "timestamp" (ms since the epoch), "value", "attempt"}, …]}`` from the
    server's series; attempts follow one another."""
    points_by_key: dict[str, list[LoggedPoint]] = {}
    for series in several:
        points_by_key.setdefault(series["key"], []).extend(
            {
                "step": step,
                "timestamp": round(at * 1000),
                "value": value,
                "attempt": series["attempt"],
            }
            for step, at, value in series["points"]
        )
    return points_by_key


class MetricRow(NamedTuple):
    """A metric of all ranks. ``last`` is the mean of the last values of the newest attempt, or one
    that is no number; ``least`` and ``greatest`` are of all attempts. ``shape`` is of the mean in
    the newest attempt, if the summary was asked for with `mean=true`."""

    name: str
    ranks: int
    last: Number | None
    least: float | None
    greatest: float | None
    step: int
    shape: list[Number]


def across_ranks(several: Iterable[MetricSummary]) -> list[MetricRow]:
    """A row for each metric, in their order."""
    by_metric: dict[str, list[MetricSummary]] = {}
    for series in several:
        by_metric.setdefault(series["name"], []).append(series)
    return [_row(name, of_name) for name, of_name in by_metric.items()]


def _row(name: str, several: list[MetricSummary]) -> MetricRow:
    attempt = max(series["attempt"] for series in several)
    newest = [series for series in several if series["attempt"] == attempt]
    lasts = [series["last"][2] for series in newest]
    numbers = [value for value in lasts if isinstance(value, int | float)]
    strange = [value for value in lasts if not isinstance(value, int | float)]
    return MetricRow(
        name,
        len(newest),
        strange[0] if strange else mean(numbers),
        min((series["min"] for series in several if series["min"] is not None), default=None),
        max((series["max"] for series in several if series["max"] is not None), default=None),
        max(series["last"][0] for series in newest),
        min(newest, key=lambda series: series["rank"] or 0)["shape"],
    )


def rounds(
    connect: Callable[[], Client], name: str, wait: float | None = None
) -> Iterator[list[MetricPoints]]:
    """Series with new points, each once, until the job has ended; empty after some seconds, or
    ``wait``, without news. Waits for a server that goes away."""
    positions: dict[str, int] = {}
    request = {"positions": positions} | ({} if wait is None else {"wait": wait})
    while True:
        news: MetricsNews = answered(
            connect,
            lambda client: client.ask(routes.follow_metrics, name, body=request),
        )
        for series in news["series"]:
            key = str(series["id"])
            positions[key] = positions.get(key, 0) + len(series["points"])
        if news["ended"] and not news["series"]:
            return
        yield news["series"]


def news(connect: Callable[[], Client], name: str) -> Iterator[list[MetricPoints]]:
    """Like ``rounds``, without empty ones."""
    return filter(None, rounds(connect, name))
