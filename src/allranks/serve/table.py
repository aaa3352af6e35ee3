"""What the server tells the router, and what the router tells the server: JSON on one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# Why a replica is not ready that still loads.
NOT_YET = "nothing listens on its socket or port yet"


class Backend(NamedTuple):
    """A replica. ``address``: `unix:NAME` in the folder of sockets, or `tcp:PORT` of this host.
    One that drains gets no more requests. ``model``: what it answers with."""

    job: str
    address: str
    drains: bool = False
    model: str = ""


class Route(NamedTuple):
    """A deployment. ``concurrency``: requests that a replica has at once; times in seconds; a
    request waits ``cold`` for the first replica; ``ready_path`` and ``live_path`` are those of its
    probes, ``failures`` of which in a row, one each ``period``, take a replica for dead."""

    name: str
    backends: tuple[Backend, ...]
    timeout: float = 5.0
    queue_wait: float = 0.5
    cold: float = 0.0
    concurrency: int = 1
    ready_path: str = "/"
    live_path: str = "/"
    probe_timeout: float = 2.0
    period: float = 10.0
    failures: int = 30


class Site(NamedTuple):
    """An endpoint. ``keys``: the SHA-256 of those that are accepted, None: no key is asked for.
    ``traffic`` and ``mirror`` are percents by deployment; ``logs``: requests are logged."""

    name: str
    keys: tuple[str, ...] | None
    traffic: Mapping[str, int]
    mirror: Mapping[str, int]
    routes: tuple[Route, ...]
    logs: bool = True


# What a router understands: one of another version of allranks may not.
FORMAT = " ".join((*Site._fields, *Route._fields, *Backend._fields))


def pack(sites: list[Site]) -> Any:
    return [
        {**site._asdict(), "routes": [_packed(route) for route in site.routes]} for site in sites
    ]


def _packed(route: Route) -> Any:
    return {**route._asdict(), "backends": [backend._asdict() for backend in route.backends]}


def load(data: Any) -> list[Site]:
    return [
        Site(**{**site, "keys": None if site["keys"] is None else tuple(site["keys"])})._replace(
            routes=tuple(_route(route) for route in site["routes"])
        )
        for site in data
    ]


def _route(data: Mapping[str, Any]) -> Route:
    return Route(**{**data, "backends": tuple(Backend(**backend) for backend in data["backends"])})
