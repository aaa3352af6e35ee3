"""What can happen to an endpoint and its deployments, and what people read of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from allranks.core.endpoints.patience import tries


class Kind(StrEnum):
    """All kinds of events. People cause the first block, the server the second."""

    CREATED = "created"
    CHANGED = "changed"
    KEYS = "keys"
    DEPLOYED = "deployed"
    UPDATED = "updated"
    ROLLED_BACK = "rolled_back"
    RESIZED = "resized"
    TRAFFIC_WAITS = "traffic_waits"
    REMOVED = "removed"
    DELETED = "deleted"

    ADOPTED = "adopted"
    SCALED = "scaled"
    STARTING = "starting"
    REFUSED = "refused"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"
    ENDED = "ended"
    RECOVERED = "recovered"
    STEADY = "steady"
    TRAFFIC_MOVED = "traffic_moved"
    TRAFFIC_ARRIVED = "traffic_arrived"


class Event(NamedTuple):
    """``at``: seconds since the epoch. ``deployment``: empty for the endpoint itself. ``by``: who
    caused it; empty for the server."""

    kind: Kind
    at: float
    deployment: str = ""
    by: str = ""
    data: Mapping[str, Any] = {}


def sentence(event: Event) -> str:
    """What happened, and why, in words."""
    return _SENTENCES[event.kind](event.data)


def _shares(traffic: Mapping[str, int]) -> str:
    return " ".join(f"{name}={percent}" for name, percent in traffic.items() if percent) or "none"


def _changed(data: Mapping[str, Any]) -> str:
    changes = data["changes"]
    others = ", ".join(sorted(key for key in changes if key not in ("name", "traffic")))
    texts = [f"traffic {_shares(changes['traffic'] or {})}"] if "traffic" in changes else []
    return "; ".join(texts + ([f"changed: {others}"] if others else []))


def _failed(data: Mapping[str, Any]) -> str:
    return f"{data['reason']}; {tries(data['failures'], data['was_ready'], data['wait'])}"


def _scaled(data: Mapping[str, Any]) -> str:
    return f"its load needs {data['replicas']} replicas, before {data['before']}"


def _resized(data: Mapping[str, Any]) -> str:
    text = f"instance_count {data['instance_count']}"
    return f"{text}; the update that failed is taken back" if data["takes_back"] else text


_SENTENCES: Mapping[Kind, Callable[[Mapping[str, Any]], str]] = {
    Kind.CREATED: lambda data: "created",
    Kind.CHANGED: _changed,
    Kind.KEYS: lambda data: "a new key",
    Kind.DEPLOYED: lambda data: "created; its first replicas start",
    Kind.UPDATED: lambda data: "updated: replicas of before answer until new ones are ready",
    Kind.ROLLED_BACK: lambda data: "goes back to the revision before",
    Kind.RESIZED: _resized,
    Kind.TRAFFIC_WAITS: lambda data: f"gets {data['percent']} percent when it is ready",
    Kind.REMOVED: lambda data: "deleted; its replicas stop",
    Kind.DELETED: lambda data: "deleted with its deployments",
    Kind.ADOPTED: lambda data: "taken over as an earlier version left it",
    Kind.SCALED: _scaled,
    Kind.STARTING: lambda data: f"{data['job']} starts, of revision {data['revision']}",
    Kind.REFUSED: lambda data: f"{data['job']} could not be submitted: {_failed(data)}",
    Kind.READY: lambda data: f"{data['job']} is ready after {data['seconds']:.0f} s",
    Kind.FAILED: _failed,
    Kind.DRAINING: lambda data: f"{data['job']} gets no more requests: {data['why']}",
    Kind.ENDED: lambda data: f"{data['job']} has ended",
    Kind.RECOVERED: lambda data: "all replicas are ready",
    Kind.STEADY: lambda data: "all replicas have been ready for a minute: failures are forgotten",
    Kind.TRAFFIC_MOVED: lambda data: f"it is ready: traffic {_shares(data['traffic'])}",
    Kind.TRAFFIC_ARRIVED: lambda data: "the router knows the new traffic",
}
