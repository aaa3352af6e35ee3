"""Routes for computes: made after asking the cluster, shown with what it has and what waits."""

from __future__ import annotations

import ipaddress
import itertools
import socket
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from starlette.concurrency import run_in_threadpool

from allranks.agent.network import interfaces
from allranks.engines.base import Host
from allranks.errors import AllranksError, Conflict, Problem, SpecError
from allranks.server.dependencies import Services, services
from allranks.server.jobs import view
from allranks.server.loop import mailbox
from allranks.spec.compute import Compute, parse

With = Annotated[Services, Depends(services)]
Data = Annotated[dict[str, Any], Body()]
router = APIRouter(prefix="/api/v1/computes")
# How many hosts of a cluster are looked up to find the way to it.
_TRIED = 20


@router.get("")
def list_computes(with_: With) -> dict[str, Any]:
    """All of them; ``default``; ``stands_for``: names that mean another compute."""
    known = with_.clusters.known()
    return {
        "computes": [_brief(with_, each, known.default) for each in known.there.values()],
        "default": known.default,
        "stands_for": known.stands_for,
    }


@router.post("", status_code=201)
async def create(data: Data, with_: With) -> dict[str, Any]:
    """Make a compute, once its cluster has been asked whether it can be."""
    compute, idle = parse(data)
    if compute.name == with_.clusters.first:
        raise Conflict(
            f"the compute {compute.name!r} is always there",
            hint=f"another name, or change it: allranks compute update {compute.name} …",
        )
    with_.computes.expect_free(compute.name)
    compute = await _checked(compute, with_)
    with_.computes.create(compute.name, compute.to_dict())
    return {**_brief(with_, compute), "without_effect": idle}


@router.patch("/{name}")
async def update(name: str, data: Data, with_: With) -> dict[str, Any]:
    """Change some of its keys; with null, back to what is default."""
    found = with_.clusters.find(name)
    before = found.to_dict()
    changed = data.pop("options", None) or {}
    options = {**before.pop("options", {}), **(changed if isinstance(changed, dict) else {})}
    options = {key: value for key, value in options.items() if value is not None}
    compute, idle = parse({**before, **data, "options": options, "name": found.name})
    if found.name == with_.clusters.first and compute.type != found.type:
        raise Conflict(f"the compute {found.name!r} is always of its type", hint="make another")
    compute = await _checked(compute, with_)
    with_.computes.put(compute.name, compute.to_dict())
    return {**_brief(with_, compute), "without_effect": idle}


@router.delete("/{name}")
def delete(name: str, with_: With) -> dict[str, Any]:
    """Jobs that run on it go on; new ones cannot be sent there. ``default``: where those go now
    that name none, if it was this one. Of the one that is always there its changes are gone."""
    name = _own(name, with_).name
    was_default = with_.clusters.known().default == name
    with_.computes.delete(name)
    return {"name": name, "default": with_.clusters.known().default if was_default else None}


@router.put("/default", status_code=204)
def set_default(name: Annotated[str, Body(embed=True)], with_: With) -> None:
    with_.computes.set_aliases({}, default=with_.clusters.find(name).name)


@router.put("/map", status_code=204)
def stand_for(data: Annotated[dict[str, str | None], Body()], with_: With) -> None:
    """Let names mean other computes; null: no longer."""
    known = with_.clusters.known()
    if taken := sorted(name for name, to in data.items() if to is not None and name in known.there):
        raise Conflict(
            f"{taken[0]!r} is a compute itself", hint="map a name that is none, or delete that one"
        )
    goals = {name: to and known.find(to).name for name, to in data.items()}
    with_.computes.set_aliases(goals)


@router.get("/{name}")
def show(name: str, with_: With) -> dict[str, Any]:
    """All about it: its options, its hosts as the cluster tells them now, and what waits."""
    compute = with_.clusters.find(name)
    told: dict[str, Any] = {"hosts": [], "trouble": None}
    try:
        told["hosts"] = [each._asdict() for each in _hosts(compute, with_)]
    except AllranksError as error:
        told["trouble"] = error.message
    jobs = [row for row in with_.records.live() if row.plan.compute == compute.name]
    return {
        **_brief(with_, compute),
        **told,
        "jobs": [
            {
                "name": row.name,
                "status": str(row.record.status),
                "nodes": row.plan.task.nodes,
                "reason": view.status_reason(row) or None,
            }
            for row in jobs
        ],
    }


def _own(name: str, with_: Services) -> Compute:
    """One that was made, or changed; the one that is always there cannot be made or deleted."""
    compute = with_.clusters.find(name)
    if not any(row.name == compute.name for row in with_.computes.list()):
        raise Conflict(
            f"the compute {compute.name!r} is always there, and as it was made",
            hint="make one of your own: allranks compute create NAME --type …",
        )
    return compute


async def _checked(compute: Compute, with_: Services) -> Compute:
    """The compute once its cluster has agreed, and the door to it is open."""
    kind = with_.clusters.kind(compute)
    options = with_.clusters.options(compute)
    engine = with_.clusters.engine_of(compute)
    await run_in_threadpool(engine.check, options)
    if not kind.remote:
        return compute
    if compute.server_address is None:
        address = await run_in_threadpool(_route, compute, with_)
    else:
        address = await run_in_threadpool(_numeric, compute.server_address)
    if address != mailbox.ADDRESS:
        await with_.door.open(address)
    return compute.model_copy(update={"server_address": address})


def _route(compute: Compute, with_: Services) -> str:
    """The address of this machine that its hosts are reached from: the kernel's own answer. Where
    it knows a way to none, there is still the disk they share."""
    found = []
    for host in itertools.islice(_hosts(compute, with_), _TRIED):
        try:
            found.append(interfaces.source(_resolved(host.address or host.name)))
        except OSError:
            continue
        if not found[-1].startswith("127."):
            return found[-1]
    # A host that is this machine: fine if there is no other.
    return found[0] if found else mailbox.ADDRESS


def _numeric(address: str) -> str:
    """The address in figures, for agents look no names up; raises SpecError for what is none."""
    if address == mailbox.ADDRESS:
        return address
    try:
        found = _resolved(address)
        wild = ipaddress.ip_address(found).is_unspecified
    except (OSError, ValueError):
        wild, found = True, ""
    if wild:
        message = f"{address!r} is not an address of this machine that nodes could call"
        hint = f"one of `ip address`, such as 10.0.0.5; or {mailbox.ADDRESS}"
        raise SpecError(Problem(message, "server_address", hint=hint))
    return found


def _resolved(name: str) -> str:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    return str(found[0][4][0])


def _hosts(compute: Compute, with_: Services) -> list[Host]:
    engine = with_.clusters.engine_of(compute)
    return list(engine.hosts(with_.clusters.options(compute)))


def _door(with_: Services, address: str | None) -> str | None:
    if address == mailbox.ADDRESS:
        return f"a mailbox below {with_.home.nodes}"
    return with_.door.url(address) if address else None


def _brief(with_: Services, compute: Compute, default: str | None = None) -> dict[str, Any]:
    address = compute.server_address
    return {
        **compute.model_dump(mode="json"),
        "options": with_.clusters.options(compute),
        "is_default": compute.name == (default or with_.clusters.known().default),
        "door": _door(with_, address),
        "door_trouble": with_.door.trouble.get(address or ""),
    }
