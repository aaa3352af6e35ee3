"""What the router is told: which replicas answer for each endpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from allranks.core.endpoints.patience import HOPELESS
from allranks.core.endpoints.record import Deployment, Endpoint, Replica
from allranks.serve.table import Backend, Route, Site, pack

log = logging.getLogger("allranks.endpoints")

# Seconds that a request waits for the first replica of a deployment that has none without requests.
_COLD = 30.0


def router_table(rows: Iterable[Endpoint]) -> Any:
    """What the router is told of all endpoints, as JSON. One that fails is left out, so that its
    old keys are not accepted, and the others go on."""
    sites = []
    for row in rows:
        try:
            if not row.is_deleted:
                sites.append(site(row))
        except Exception:
            log.exception("%s: left out of the router's table", row.name)
    return pack(sites)


def site(row: Endpoint) -> Site:
    """What the router is told of an endpoint."""
    spec = row.parsed()
    return Site(
        row.name,
        None if spec.auth_mode == "none" else tuple(row.keys),
        spec.traffic,
        spec.mirror_traffic,
        tuple(map(_route, row.answering)),
        spec.access_log,
    )


def _route(row: Deployment) -> Route:
    from allranks.spec.endpoint import path_of  # lazy: most homes have no endpoints

    spec = row.parsed()
    settings, live = spec.request_settings, spec.liveness_probe
    scale = row.scale
    is_cold = scale is not None and scale.least == 0 and row.failures < HOPELESS
    return Route(
        name=row.name,
        backends=tuple(
            Backend(item.job, _address(item), item.drains_since is not None, item.model)
            for item in row.replicas
        ),
        timeout=settings.request_timeout_ms / 1000,
        queue_wait=settings.max_queue_wait_ms / 1000,
        cold=_COLD if is_cold else 0.0,
        concurrency=settings.max_concurrent_requests_per_instance,
        ready_path=spec.readiness_probe.path or path_of(row.spec, "readiness_route") or "/",
        live_path=live.path or path_of(row.spec, "liveness_route") or "/",
        probe_timeout=float(live.timeout),
        period=float(live.period),
        failures=live.failure_threshold,
    )


def _address(replica: Replica) -> str:
    """Where the router meets it: another machine's at the socket that leads there."""
    kind, _, place = replica.address.partition(":")
    return f"unix:{place.partition(':')[0]}" if kind == "far" else replica.address
