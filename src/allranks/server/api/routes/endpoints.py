"""Routes for endpoints: their specification, their traffic, their keys."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import cast

from allranks.api.endpoints import DeploymentSeries, EndpointAnswer, EndpointEvent, EndpointKeys
from allranks.core.endpoints import changes
from allranks.core.endpoints.events import Event, Kind
from allranks.core.endpoints.record import Endpoint
from allranks.errors import Conflict, ServerError, UsageError
from allranks.server.auth.roles import Who, require_own, shown_to
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.endpoints import view
from allranks.server.loop.subscriptions import Change
from allranks.spec.endpoint import parse_endpoint


def list_endpoints(services: ServicesDep, who: Who) -> list[EndpointAnswer]:
    return [shown_to(who, view.endpoint(row, services)) for row in services.endpoints.list()]


def create(data: JsonBody, services: ServicesDep, who: Who) -> EndpointAnswer:
    """Create an endpoint, with two keys of its own."""
    name = parse_endpoint(data).name
    if services.batch.find(name) is not None:
        hint = "take another name, or delete that one first"
        raise Conflict(f"{name!r} is a batch endpoint", hint=hint)
    now = time.time()
    with services.endpoints.keys_lock:
        services.endpoints.create(
            name, lambda before: changes.create(before, name, data, now, who.name)
        )
        row = _new_keys(name, ("primary", "secondary"), services, who)
    services.subscriptions.publish(Change.ROUTE)  # the answer has the router's address
    return view.endpoint(row, services)


def show(name: str, services: ServicesDep, who: Who) -> EndpointAnswer:
    return shown_to(who, view.endpoint(services.endpoints.get(name), services))


def events(name: str, services: ServicesDep) -> list[EndpointEvent]:
    """What has happened to an endpoint and its deployments, and why: the newest thousand."""
    return [view.event(stored) for stored in services.endpoints.events(name)]


def series(name: str, services: ServicesDep) -> list[DeploymentSeries]:
    """How its deployments answered in the last hour."""
    samples = services.endpoints.samples
    rows = services.endpoints.get(name).answering
    return [samples.series(row.key, row.name) for row in rows]


def update(name: str, data: JsonBody, services: ServicesDep, who: Who) -> EndpointAnswer:
    """Replace keys of an endpoint's specification: its traffic, tags, …"""

    def changed(endpoint: Endpoint) -> list[Event]:
        require_own(who, name, endpoint.created_by)
        return changes.change(endpoint, data, time.time(), who.name)

    row = services.endpoints.change(name, changed)
    tell_router(services, name)
    return view.endpoint(row, services)


def delete(name: str, services: ServicesDep, who: Who) -> EndpointAnswer:
    """Delete an endpoint with its deployments."""

    def deleted(endpoint: Endpoint) -> list[Event]:
        require_own(who, name, endpoint.created_by)
        return [Event(Kind.DELETED, time.time(), by=who.name)]

    answer = view.endpoint(services.endpoints.get(name), services)
    with services.endpoints.keys_lock:
        services.endpoints.change(name, deleted)
        services.endpoints.keys.put(name, {})
    tell_router(services, name)
    return answer


def show_keys(name: str, services: ServicesDep, who: Who) -> EndpointKeys:
    """The keys, for who created the endpoint, and admins: they hand them to who may call it."""
    require_own(who, name, services.endpoints.get(name).created_by)
    return cast(EndpointKeys, services.endpoints.keys.get(name))


def renew_key(name: str, data: JsonBody, services: ServicesDep, who: Who) -> EndpointKeys:
    """Replace the key that ``data`` names as ``key``: `primary` or `secondary`."""
    which = data.get("key", "primary")
    if which not in ("primary", "secondary"):
        raise UsageError(f"{which!r} is no key", hint="primary or secondary")
    with services.endpoints.keys_lock:
        _new_keys(name, (which,), services, who)
    tell_router(services, name)
    return show_keys(name, services, who)


def _new_keys(name: str, which: tuple[str, ...], services: Services, who: Who) -> Endpoint:
    keys = {
        **services.endpoints.keys.get(name),
        **{item: secrets.token_urlsafe(32) for item in which},
    }
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in keys.values()]

    def renewed(endpoint: Endpoint) -> list[Event]:
        require_own(who, name, endpoint.created_by)
        return [Event(Kind.KEYS, time.time(), by=who.name, data={"keys": hashes})]

    row = services.endpoints.change(name, renewed)
    services.endpoints.keys.put(name, keys)
    return row


def tell_router(services: Services, name: str) -> None:
    """Raises ServerError if the router may go on as before the change, which is stored."""
    if not services.subscriptions.publish(Change.ROUTE):
        hint = "it takes effect when the router answers: see server.log in the server's home"
        raise ServerError(
            "the change is stored; the router does not know it yet", where=name, hint=hint
        )
