"""The metrics of a job: points by name, and new points as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypedDict

from allranks.http_client import Client
from allranks.sdk.connection.urls import job_path
from allranks.sdk.jobs.follow import answered

if TYPE_CHECKING:
    from allranks.api.common import Number
    from allranks.api.metrics import MetricPoints, MetricsNews


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
            lambda client: client.json("POST", job_path(name, "/metrics/follow"), request),
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
