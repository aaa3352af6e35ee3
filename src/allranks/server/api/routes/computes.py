"""Routes for computes: created once the cluster agrees, shown with its hosts and jobs."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from allranks.agent.network import interfaces
from allranks.api import computes as api
from allranks.engines.base import Host, Kind
from allranks.engines.options import connection
from allranks.errors import AllranksError, Conflict, Problem, SpecError
from allranks.server.arguments import BODY
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.http.agents_listener import NAMED
from allranks.server.jobs import view
from allranks.server.jobs.hosts import on_host
from allranks.server.loop import mailbox
from allranks.server.timestamps import iso_time
from allranks.spec.compute import Compute, parse
from allranks.store.jobs.job_rows import JobRow

# The most hosts of a cluster that are resolved to find a route to it.
_TRIED = 20
_NAME = re.compile(rf"{NAMED}[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class Default(BaseModel):
    name: str


def list_computes(services: ServicesDep) -> api.ComputesAnswer:
    """All computes; ``default``; ``stands_for``: names that are mapped to a compute."""
    config = services.clusters.known()
    return {
        "computes": [
            _brief(services, compute, config.default) for compute in config.computes.values()
        ],
        "default": config.default,
        "stands_for": {**config.stands_for},
    }


async def create(
    data: JsonBody, services: ServicesDep, replace: bool = False
) -> api.ChangedCompute:
    """Create a compute after its cluster has checked the options; ``replace``: or give the one of
    this name exactly these keys."""
    compute, idle = parse(data)
    if compute.name == services.clusters.first:
        hint = f"choose another name, or change it: allranks compute update {compute.name} …"
        raise Conflict(f"the compute {compute.name!r} is built in", hint=hint)
    if not replace:
        services.computes.expect_free(compute.name)
    compute, note = await _checked(compute, services)
    keep = services.computes.put if replace else services.computes.create
    keep(compute.name, compute.to_dict())
    return _changed(compute, idle, note, services)


async def update(name: str, data: JsonBody, services: ServicesDep) -> api.ChangedCompute:
    """Change some keys; null resets a key to its default."""
    current = services.clusters.find(name)
    before = current.to_dict()
    changed = data.pop("options", None) or {}
    options = {**before.pop("options", {}), **(changed if isinstance(changed, dict) else {})}
    options = {key: value for key, value in options.items() if value is not None}
    compute, idle = parse({**before, **data, "options": options, "name": current.name})
    if current.name == services.clusters.first and compute.type != current.type:
        raise Conflict(
            f"the type of the built-in compute {current.name!r} is fixed", hint="create another"
        )
    compute, note = await _checked(compute, services)
    services.computes.put(compute.name, compute.to_dict())
    return _changed(compute, idle, note, services)


def delete(name: str, services: ServicesDep) -> api.DeletedCompute:
    """Delete a compute; its running jobs continue. Resets a changed built-in one. ``default``: the
    new default compute, if this was the default."""
    name = _own(name, services).name
    was_default = services.clusters.known().default == name
    services.computes.delete(name)
    return {"name": name, "default": services.clusters.known().default if was_default else None}


def set_default(body: Default, services: ServicesDep) -> None:
    compute = services.clusters.find(body.name)
    services.computes.set_aliases({}, default=compute.name)
    if compute.type == services.clusters.first:
        services.home.elsewhere.unlink(missing_ok=True)
    else:
        services.home.elsewhere.touch()


def stand_for(data: Annotated[dict[str, str | None], BODY], services: ServicesDep) -> None:
    """Map names to computes; null removes a mapping."""
    config = services.clusters.known()
    if taken := sorted(
        name for name, to in data.items() if to is not None and name in config.computes
    ):
        raise Conflict(f"{taken[0]!r} is a compute", hint="map another name, or delete the compute")
    targets = {name: to and config.find(to).name for name, to in data.items()}
    services.computes.set_aliases(targets)


def show(name: str, services: ServicesDep) -> api.ShownCompute:
    """A compute with its options, its hosts as the cluster lists them now, and its live jobs."""
    compute = services.clusters.find(name)
    hosts: list[Host] = []
    trouble = None
    try:
        hosts = _hosts(compute, services)
    except AllranksError as error:
        trouble = error.message
    jobs = [row for row in services.records.live() if row.plan.compute == compute.name]
    return {
        **_brief(services, compute),
        "hosts": [_host(host, jobs) for host in hosts],
        "trouble": trouble,
        "jobs": [
            {
                "name": row.name,
                "status": str(row.record.status),
                "nodes": row.plan.task.nodes,
                "ranks": row.plan.task.nodes * row.plan.task.procs,
                "gpus": row.plan.task.nodes * row.plan.task.gpus,
                "created_at": iso_time(row.created_at),
                "created_by": view.submitter(row.spec),
                "reason": view.status_reason(row, services.home) or None,
            }
            for row in jobs
        ],
    }


def _host(host: Host, jobs: Sequence[JobRow]) -> api.HostAnswer:
    runs = [on_host(row, host) for row in jobs]
    return cast("api.HostAnswer", {**host._asdict(), "runs": [run for run in runs if run]})


def _own(name: str, services: Services) -> Compute:
    """The compute, unless it is an unchanged built-in one, which cannot be deleted."""
    compute = services.clusters.find(name)
    if not any(row.name == compute.name for row in services.computes.list()):
        hint = "create your own: allranks compute create NAME --type …"
        raise Conflict(f"the compute {compute.name!r} is built in and cannot be deleted", hint=hint)
    return compute


async def _checked(compute: Compute, services: Services) -> tuple[Compute, str | None]:
    """The compute with its server address, after its cluster has checked the options and the
    agents' listener is open; and the cluster's note."""
    kind = services.clusters.kind(compute)
    options = services.clusters.options(compute)
    engine = services.clusters.engine_of(compute)
    note = await run_in_threadpool(engine.check, options)
    if not kind.remote:
        return compute, note
    requested = compute.server_address or os.environ.get("ALLRANKS_SERVER_ADDRESS")
    if requested is None:
        address = await run_in_threadpool(_route, compute, services)
    else:
        address = await run_in_threadpool(_numeric, requested)
    if address == mailbox.ADDRESS:
        _require_shared_disk(kind, options)
    else:
        await services.agents_listener.open(address)
    return compute.model_copy(update={"server_address": address}), note


def _changed(
    compute: Compute, idle: Sequence[str], note: str | None, services: Services
) -> api.ChangedCompute:
    """With the keys without effect, and ``notes`` on what is possible but will hardly work."""
    kind, address = services.clusters.kind(compute), compute.server_address or ""
    notes = [note] if note else []
    if _is_loopback(address) and kind.own_networks(services.clusters.options(compute)):
        notes.append(
            f"the nodes have a network of their own, where {address} is not this machine; give "
            "an address that they can call (`ip address` shows those of this machine)"
        )
    return {**_brief(services, compute), "without_effect": [*idle], "notes": notes}


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name, or a mailbox
        return False


def _route(compute: Compute, services: Services) -> str:
    """The address of this machine by which the cluster's hosts can call it, from the kernel's
    routes; without a route a mailbox on the shared disk."""
    candidates = []
    for peer in _peers(compute, services):
        try:
            candidates.append(interfaces.source(_resolved(peer)))
        except OSError:
            continue
        if not candidates[-1].startswith("127."):
            return candidates[-1]
    # Loopback suffices if the only host is this machine.
    return candidates[0] if candidates else mailbox.ADDRESS


def _peers(compute: Compute, services: Services) -> Iterator[str]:
    """Where a route is looked for: the hosts that the options select; all, if these select none
    now, as of a pool scaled to zero; and without a host to see or a shared disk the cluster."""
    kind = services.clusters.kind(compute)
    options = services.clusters.options(compute)
    engine = services.clusters.engine_of(compute)
    hosts = engine.hosts(options) or engine.hosts(connection(kind.options, options))
    yield from (host.address or host.name for host in hosts[:_TRIED])
    if not hosts and kind.own_disks(options):
        yield kind.address(options)


def _require_shared_disk(kind: Kind, options: Mapping[str, Any]) -> None:
    """Raise SpecError for a mailbox that no node can read."""
    if kind.own_disks(options):
        message = "a mailbox is a folder of the server's home, and the nodes do not share its disk"
        hint = "use an address of this machine that they can call (`ip address` shows them), or a "
        hint += "volume with the home"
        raise SpecError(Problem(message, "server_address", hint=hint))


def _numeric(address: str) -> str:
    """The numeric address, unless agents are to resolve its name. Raises SpecError."""
    if address == mailbox.ADDRESS or _NAME.fullmatch(address):
        return address
    try:
        numeric = _resolved(address)
        wild = ipaddress.ip_address(numeric).is_unspecified
    except (OSError, ValueError):
        wild, numeric = True, ""
    if wild:
        message = f"{address!r} is not an address of this machine that nodes can call"
        hint = (
            f"use one that `ip address` shows, such as 10.0.0.5; {NAMED}NAME, if only its name "
            f"stays the same; or {mailbox.ADDRESS}"
        )
        raise SpecError(Problem(message, "server_address", hint=hint))
    return numeric


def _resolved(name: str) -> str:
    results = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    return str(results[0][4][0])


def _hosts(compute: Compute, services: Services) -> list[Host]:
    engine = services.clusters.engine_of(compute)
    return list(engine.hosts(services.clusters.options(compute)))


def _agents_url(services: Services, address: str | None) -> str | None:
    if address == mailbox.ADDRESS:
        return f"a mailbox below {services.home.nodes}"
    return services.agents_listener.url(address) if address else None


def _brief(services: Services, compute: Compute, default: str | None = None) -> api.ComputeAnswer:
    address = compute.server_address
    return {
        **cast("api.ComputeSpec", compute.model_dump(mode="json")),
        "options": services.clusters.options(compute),
        "is_default": compute.name == (default or services.clusters.known().default),
        "door": _agents_url(services, address),
        "door_trouble": services.agents_listener.trouble.get(address or ""),
    }
