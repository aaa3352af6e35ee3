"""What people may change of an endpoint: each rule returns the events, or raises. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.core.endpoints.events import Event, Kind
from allranks.core.endpoints.fold import fold
from allranks.core.endpoints.record import Deployment, Endpoint, Revision
from allranks.errors import Conflict, NotFound, Problem, SpecError


def create(
    before: Endpoint | None, name: str, spec: Mapping[str, Any], at: float, by: str
) -> list[Event]:
    """Raises Conflict if there is one of that name."""
    if before is not None and not before.is_deleted:
        hint = f"allranks endpoint update {name}, or delete it first"
        raise Conflict(f"an endpoint named {name!r} already exists", hint=hint)
    created = Event(Kind.CREATED, at, by=by, data={"name": name, "spec": dict(spec)})
    _check_traffic(fold(before, created))
    return [created]


def change(endpoint: Endpoint, changes: Mapping[str, Any], at: float, by: str) -> list[Event]:
    """Replace keys of the specification. Raises SpecError."""
    made = Event(Kind.CHANGED, at, by=by, data={"changes": dict(changes)})
    _check_traffic(fold(endpoint, made))
    return [made]


def _check_traffic(endpoint: Endpoint) -> None:
    spec, names = endpoint.parsed(), {row.name for row in endpoint.answering}
    for key, several in (("traffic", spec.traffic), ("mirror_traffic", spec.mirror_traffic)):
        for name, percent in several.items():
            if percent and name not in names:
                has = ", ".join(sorted(names)) or "none yet"
                problem = Problem(f"there is no deployment {name!r}", key, hint=f"there are: {has}")
                raise SpecError(problem)


def deployment_of(endpoint: Endpoint, name: str) -> Deployment:
    """Raises NotFound."""
    row = endpoint.deployments.get(name)
    if row is None or row.is_deleted:
        hint = f"allranks deployment list -e {endpoint.name}"
        raise NotFound(f"deployment {name!r} of endpoint {endpoint.name!r} not found", hint=hint)
    return row


def deploy(
    endpoint: Endpoint, name: str, new: Revision, percent: int, at: float, by: str
) -> list[Event]:
    """Create a deployment, also while replicas of a deleted one of that name stop. Raises Conflict
    if there is one."""
    before = endpoint.deployments.get(name)
    if before is not None and not before.is_deleted:
        hint = "update it: allranks deployment update -f FILE"
        raise Conflict(f"a deployment named {before.key!r} already exists", hint=hint)
    made = Event(Kind.DEPLOYED, at, name, by, _data(new))
    return [made, *_share(endpoint, name, percent, at, by)]


def update(
    endpoint: Endpoint, name: str, new: Revision | None, percent: int, at: float, by: str
) -> list[Event]:
    """Update a deployment; None: back to what it was before. Raises NotFound, Conflict."""
    row = deployment_of(endpoint, name)
    if new is None:
        _require_previous(row)
        made = Event(Kind.ROLLED_BACK, at, name, by)
    else:
        made = Event(Kind.UPDATED, at, name, by, _data(new))
    return [made, *_share(endpoint, name, percent, at, by)]


def _data(new: Revision) -> dict[str, Any]:
    return {"spec": new.spec, "submission": new.submission, "asset": new.asset}


def _require_previous(row: Deployment) -> None:
    if row.previous is None:
        hint = f"allranks deployment update {row.name} -e {row.endpoint} -f FILE"
        raise Conflict(f"{row.key} has no earlier revision that was ready", hint=hint)


def resize(
    endpoint: Endpoint, name: str, count: Any, takes_back: bool, at: float, by: str
) -> list[Event]:
    """Another ``instance_count``; an update that failed is taken back, so that only what was before
    answers. Raises NotFound, SpecError, Conflict."""
    row = deployment_of(endpoint, name)
    if takes_back:
        _require_previous(row)
    made = Event(Kind.RESIZED, at, name, by, {"instance_count": count, "takes_back": takes_back})
    after = fold(endpoint, made).deployments[name]
    if after.scale is not None:
        hint = "change scale_settings in its file: allranks deployment update -f FILE"
        raise Conflict(f"the load says how many replicas {row.key} has", hint=hint)
    after.parsed()
    return [made]


def delete(endpoint: Endpoint, name: str, at: float, by: str) -> list[Event]:
    """Delete a deployment. Raises NotFound, and Conflict while it has traffic."""
    row = deployment_of(endpoint, name)
    if percent := endpoint.traffic.get(name):
        command = f'allranks endpoint update {endpoint.name} --traffic "OTHER=100"'
        hint = f"{command}, or delete the endpoint"
        raise Conflict(f"{row.key} has {percent} percent of the traffic", hint=hint)
    return [Event(Kind.REMOVED, at, name, by)]


def _share(endpoint: Endpoint, name: str, percent: int, at: float, by: str) -> list[Event]:
    """It alone gets traffic when it is ready, or at once where nobody has any."""
    if not percent:
        return []
    if any(endpoint.traffic.values()):
        return [Event(Kind.TRAFFIC_WAITS, at, name, by, {"percent": percent})]
    return [Event(Kind.CHANGED, at, by=by, data={"changes": {"traffic": {name: 100}}})]
