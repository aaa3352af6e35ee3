"""Routes for the deployments of endpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from allranks.api.endpoints import DeploymentAnswer
from allranks.core.endpoints import changes
from allranks.core.endpoints.events import Event
from allranks.core.endpoints.fold import fold
from allranks.core.endpoints.record import Deployment, Endpoint
from allranks.errors import Problem, SpecError
from allranks.server.api.routes.endpoints import tell_router
from allranks.server.auth.roles import Who, require_own, shown_to
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.endpoints import admission, view
from allranks.server.loop.subscriptions import Change


def create(name: str, data: JsonBody, services: ServicesDep, who: Who) -> DeploymentAnswer:
    """Create a deployment: ``deployment`` is its spec, ``submission`` the job of a replica. It gets
    ``traffic`` percent, or all with ``all_traffic``: at once where nobody has any, else when it is
    ready."""
    new = admission.deployment(services.endpoints.get(name), data, services)
    percent = _percent(data)

    def deployed(endpoint: Endpoint) -> list[Event]:
        require_own(who, name, endpoint.created_by)
        admission.require_code(new.submission, services)
        return changes.deploy(endpoint, new.name, new.current, percent, time.time(), who.name)

    with services.admission_lock:
        row = services.endpoints.change(name, deployed)
    services.subscriptions.publish(Change.ENDPOINT)
    return view.deployment(row.deployments[new.name], services)


def update(
    name: str, deployment: str, data: JsonBody, services: ServicesDep, who: Who
) -> DeploymentAnswer:
    """Update a deployment: new replicas are ready before the old ones drain. ``data`` is as for
    `create`, or has ``instance_count``, or ``rollback``: to what it was before, or ``changes``:
    keys of its spec, beside which all stays, the code too."""
    before = services.endpoints.deployment(name, deployment)
    percent, changed = _percent(data), data.get("changes")
    if data.keys() == {"instance_count"}:
        return _resize(before, data["instance_count"], services, who)
    new: Deployment | None = None
    if data.get("rollback"):
        admission.require_model_of_before(before, services)
    else:
        request = admission.with_changes(before, changed) if isinstance(changed, dict) else data
        new = admission.deployment(services.endpoints.get(name), request, services)

    def updated(endpoint: Endpoint) -> list[Event]:
        require_own(who, before.key, changes.deployment_of(endpoint, deployment).created_by)
        if new is not None:
            admission.require_code(new.submission, services)
        revision = None if new is None else new.current
        return changes.update(endpoint, deployment, revision, percent, time.time(), who.name)

    with services.admission_lock:
        row = services.endpoints.change(name, updated)
    services.subscriptions.publish(Change.ENDPOINT)
    return view.deployment(row.deployments[deployment], services)


def _resize(before: Deployment, count: Any, services: Services, who: Who) -> DeploymentAnswer:
    """Give a deployment another number of replicas; an update that failed is taken back."""
    takes_back = False

    def resized(endpoint: Endpoint) -> list[Event]:
        nonlocal takes_back
        row = changes.deployment_of(endpoint, before.name)
        require_own(who, row.key, row.created_by)
        takes_back = view.deployment(row, services)["state"] == "UpdateFailed"
        return changes.resize(endpoint, row.name, count, takes_back, time.time(), who.name)

    endpoint = services.endpoints.get(before.endpoint)
    for event in resized(endpoint):
        after = fold(endpoint, event).deployments[before.name]
        if after.instances > before.instances:
            admission.require_capacity(after, services)
    row = services.endpoints.change(before.endpoint, resized).deployments[before.name]
    services.subscriptions.publish(Change.ENDPOINT)
    answer = view.deployment(row, services)
    if takes_back:
        answer["notes"].append(f"the update of {row.key} that failed is taken back")
    return answer


def _percent(data: Mapping[str, Any]) -> int:
    """The traffic that a deployment is to get. Raises SpecError."""
    percent = 100 if data.get("all_traffic") else data.get("traffic", 0)
    if type(percent) is not int or not 0 <= percent <= 100:
        raise SpecError(Problem("must be a percent, from 0 to 100", "traffic", hint="as 25"))
    return percent


def show(name: str, deployment: str, services: ServicesDep, who: Who) -> DeploymentAnswer:
    row = services.endpoints.deployment(name, deployment)
    return shown_to(who, view.deployment(row, services))


def delete(name: str, deployment: str, services: ServicesDep, who: Who) -> DeploymentAnswer:
    """Delete a deployment. Raises Conflict while it has traffic."""

    def deleted(endpoint: Endpoint) -> list[Event]:
        row = changes.deployment_of(endpoint, deployment)
        require_own(who, row.key, row.created_by)
        return changes.delete(endpoint, deployment, time.time(), who.name)

    row = services.endpoints.deployment(name, deployment)
    services.endpoints.change(name, deleted)
    tell_router(services, row.key)
    return view.deployment(row._replace(is_deleted=True), services)
