"""The fold: an endpoint after an event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from allranks.core.endpoints.events import Event, Kind
from allranks.core.endpoints.record import Deployment, Endpoint, Replica, Revision
from allranks.core.packing import unpack


def fold(endpoint: Endpoint | None, event: Event) -> Endpoint:
    """The endpoint after an event; the first one creates it, also anew while replicas of a deleted
    one of that name stop."""
    if event.kind is Kind.CREATED:
        return _created(endpoint, event)
    assert endpoint is not None, "the first event of an endpoint creates it"
    if event.deployment:
        endpoint = _with_deployment(endpoint, event)
    if event.kind in _OF_ENDPOINT:
        endpoint = _OF_ENDPOINT[event.kind](endpoint, event)
    return endpoint._replace(version=endpoint.version + 1)


def fold_all(endpoint: Endpoint | None, events: Iterable[Event]) -> Endpoint:
    for event in events:
        endpoint = fold(endpoint, event)
    assert endpoint is not None
    return endpoint


def _created(before: Endpoint | None, event: Event) -> Endpoint:
    data, deployments = event.data, {} if before is None else before.deployments
    version = 1 if before is None else before.version + 1
    keys = tuple(data.get("keys", ()))
    return Endpoint(
        data["name"], dict(data["spec"]), event.at, event.by, keys, False, deployments, version
    )


# ---------------------------------------------------------------- of the endpoint


def _changed(endpoint: Endpoint, event: Event) -> Endpoint:
    changes = event.data["changes"]
    if "traffic" in changes:  # what a person says ends what deployments wait for
        endpoint = _without_wishes(endpoint)
    return endpoint._replace(spec={**endpoint.spec, **changes, "name": endpoint.name})


def _deleted(endpoint: Endpoint, event: Event) -> Endpoint:
    rows = {
        name: row._replace(is_deleted=True)
        for name, row in endpoint.deployments.items()
        if row.replicas
    }
    return endpoint._replace(is_deleted=True, keys=(), deployments=rows)


def _traffic_waits(endpoint: Endpoint, event: Event) -> Endpoint:
    endpoint = _without_wishes(endpoint)
    row = endpoint.deployments[event.deployment]
    return _put(endpoint, row._replace(takes_traffic=int(event.data["percent"])))


def _traffic_moved(endpoint: Endpoint, event: Event) -> Endpoint:
    return endpoint._replace(spec={**endpoint.spec, "traffic": dict(event.data["traffic"])})


def _without_wishes(endpoint: Endpoint) -> Endpoint:
    rows = {name: row._replace(takes_traffic=0) for name, row in endpoint.deployments.items()}
    return endpoint._replace(deployments=rows)


_OF_ENDPOINT: Mapping[Kind, Callable[[Endpoint, Event], Endpoint]] = {
    Kind.CHANGED: _changed,
    Kind.KEYS: lambda endpoint, event: endpoint._replace(keys=tuple(event.data["keys"])),
    Kind.DELETED: _deleted,
    Kind.TRAFFIC_WAITS: _traffic_waits,
    Kind.TRAFFIC_MOVED: _traffic_moved,
}


# ---------------------------------------------------------------- of a deployment


def _with_deployment(endpoint: Endpoint, event: Event) -> Endpoint:
    before = endpoint.deployments.get(event.deployment)
    if event.kind is Kind.DEPLOYED:
        return _put(endpoint, _deployed(endpoint, before, event))
    if event.kind is Kind.ADOPTED:
        return _put(endpoint, unpack(Deployment, event.data))
    if event.kind not in _OF_DEPLOYMENT or before is None:
        return endpoint
    row = _OF_DEPLOYMENT[event.kind](before, event)
    if row.is_deleted and not row.replicas:
        rows = {name: row for name, row in endpoint.deployments.items() if name != event.deployment}
        return endpoint._replace(deployments=rows)
    return _put(endpoint, row)


def _put(endpoint: Endpoint, row: Deployment) -> Endpoint:
    return endpoint._replace(deployments={**endpoint.deployments, row.name: row})


def _deployed(endpoint: Endpoint, before: Deployment | None, event: Event) -> Deployment:
    """What is left of a deleted one of that name counts as replicas of an earlier revision."""
    data, replicas, revision = event.data, list[Replica](), 1
    if before is not None:
        replicas = [
            item if item.drains_since else item._replace(drains_since=event.at)
            for item in before.replicas
        ]
        revision = _next_revision(before)
    return Deployment(
        endpoint.name,
        event.deployment,
        data["spec"],
        data["submission"],
        revision,
        event.at,
        event.by,
        asset=data["asset"],
        replicas=tuple(replicas),
    )


def _next_revision(row: Deployment) -> int:
    return 1 + max([row.revision, *(item.revision for item in row.replicas)])


def _updated(row: Deployment, event: Event) -> Deployment:
    """A new revision. To go back is to the last one that was ready."""
    data = event.data
    new = Revision(data["spec"], data["submission"], data["asset"], _next_revision(row))
    previous = row.previous if row.is_unproven and row.previous else row.current
    return _clean(row)._replace(**new._asdict(), previous=previous)


def _rolled_back(row: Deployment, event: Event) -> Deployment:
    """A revision that failed is none to return to, and the replicas of before stay."""
    if row.previous is None:
        return row
    new = row.previous
    if row.is_unproven:
        return _clean(row)._replace(**new._asdict(), previous=None)
    new = new._replace(revision=_next_revision(row))
    return _clean(row)._replace(**new._asdict(), previous=row.current)


def _clean(row: Deployment) -> Deployment:
    """Tries of before say nothing of a new revision, of which one replica at least is to show
    whether it works."""
    return row._replace(
        failures=0, next_try=0.0, reason=None, failed_job=None, scaled=row.scaled or None
    )


def _resized(row: Deployment, event: Event) -> Deployment:
    if event.data["takes_back"]:
        row = _rolled_back(row, event)
    spec = {**row.spec, "instance_count": event.data["instance_count"]}
    return row._replace(spec=spec, failures=0, next_try=0.0)


def _starting(row: Deployment, event: Event) -> Deployment:
    replica = unpack(Replica, {**event.data, "started_at": event.at})
    return row._replace(replicas=(*row.replicas, replica))


def _ready(row: Deployment, event: Event) -> Deployment:
    if event.data["revision"] == row.revision:
        row = row._replace(ready_revision=row.revision)
    return _with_replica(row, event, was_ready=True)


def _failed(row: Deployment, event: Event) -> Deployment:
    data = event.data
    row = row._replace(
        failures=data["failures"],
        reason=data["reason"],
        next_try=event.at + data["wait"],
        failed_job=None if event.kind is Kind.REFUSED else data["job"],
    )
    return _ended(row, event) if data["ended"] else _draining(row, event)


def _draining(row: Deployment, event: Event) -> Deployment:
    return _with_replica(row, event, drains_since=event.at)


def _ended(row: Deployment, event: Event) -> Deployment:
    job = event.data["job"]
    return row._replace(replicas=tuple(item for item in row.replicas if item.job != job))


def _with_replica(row: Deployment, event: Event, **columns: Any) -> Deployment:
    replicas = (
        item._replace(**columns) if item.job == event.data["job"] else item for item in row.replicas
    )
    return row._replace(replicas=tuple(replicas))


def _to(**columns: Any) -> Callable[[Deployment, Event], Deployment]:
    return lambda row, event: row._replace(**columns)


_OF_DEPLOYMENT: Mapping[Kind, Callable[[Deployment, Event], Deployment]] = {
    Kind.UPDATED: _updated,
    Kind.ROLLED_BACK: _rolled_back,
    Kind.RESIZED: _resized,
    Kind.REMOVED: _to(is_deleted=True),
    Kind.SCALED: lambda row, event: row._replace(scaled=event.data["replicas"]),
    Kind.STARTING: _starting,
    Kind.REFUSED: _failed,
    Kind.READY: _ready,
    Kind.FAILED: _failed,
    Kind.DRAINING: _draining,
    Kind.ENDED: _ended,
    Kind.RECOVERED: _to(reason=None),
    Kind.STEADY: _to(failures=0),
    Kind.TRAFFIC_ARRIVED: _to(takes_traffic=0),
}
