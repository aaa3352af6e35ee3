"""The metrics of a job: their points by name, and what is new as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from allranks.http_client import Client
from allranks.sdk.connection.urls import job_path
from allranks.sdk.jobs.follow import answered


def by_name(several: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """``{metric: [{"step", "timestamp" (ms since the epoch), "value", "attempt"}, …]}`` of the
    series that a server tells, those of several attempts one after the other."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in several:
        found.setdefault(each["key"], []).extend(
            {
                "step": step,
                "timestamp": round(at * 1000),
                "value": value,
                "attempt": each["attempt"],
            }
            for step, at, value in each["points"]
        )
    return found


def rounds(
    connect: Callable[[], Client], name: str, wait: float | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Series with their new points, each once, until the job has ended; none when there was nothing
    new for some seconds, or for ``wait``. A server that goes away is waited for."""
    positions: dict[str, int] = {}
    known = {"positions": positions} | ({} if wait is None else {"wait": wait})
    while True:
        told = answered(
            connect,
            lambda client: client.json("POST", job_path(name, "/metrics/follow"), known),
        )
        for each in told["series"]:
            key = str(each["id"])
            positions[key] = positions.get(key, 0) + len(each["points"])
        if told["ended"] and not told["series"]:
            return
        yield told["series"]


def news(connect: Callable[[], Client], name: str) -> Iterator[list[dict[str, Any]]]:
    """As ``rounds``, and only when there is something new."""
    return filter(None, rounds(connect, name))
