"""Routes for computes: made after asking the cluster, shown with what it has and what waits."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from starlette.concurrency import run_in_threadpool

from allranks.agent import network
from allranks.engines.base import Host
from allranks.errors import AllranksError, Conflict
from allranks.server import mailbox, shown
from allranks.server.services import Services, services
from allranks.spec.compute import Compute, parse

With = Annotated[Services, Depends(services)]
Data = Annotated[dict[str, Any], Body()]
router = APIRouter(prefix="/api/v1/computes")


@router.get("")
def list_computes(with_: With) -> dict[str, Any]:
    """All of them; ``default``; ``stands_for``: names that mean another compute."""
    found = with_.clusters
    return {
        "computes": [_brief(with_, each) for each in found.all()],
        "default": found.find(None).name,
        "stands_for": found.stands_for(),
    }


@router.post("", status_code=201)
async def create(data: Data, with_: With) -> dict[str, Any]:
    """Make a compute, once its cluster has been asked whether it can be."""
    compute, idle = parse(data)
    if any(each.name == compute.name for each in with_.computes.list()):
        raise Conflict(
            f"there is a compute named {compute.name!r} already",
            hint=f"another name, or change it: allranks compute update {compute.name} …",
        )
    compute = await _checked(compute, with_)
    with_.computes.create(compute.name, compute.to_dict())
    return {**_brief(with_, compute), "without_effect": idle}


@router.patch("/{name}")
async def update(name: str, data: Data, with_: With) -> dict[str, Any]:
    """Change some of its keys; with null, back to what is default."""
    before = _own(name, with_).to_dict()
    options = {**before.pop("options", {}), **data.pop("options", {})}
    options = {key: value for key, value in options.items() if value is not None}
    compute, idle = parse({**before, **data, "options": options, "name": name})
    compute = await _checked(compute, with_)
    with_.computes.update(name, compute.to_dict())
    return {**_brief(with_, compute), "without_effect": idle}


@router.delete("/{name}", status_code=204)
def delete(name: str, with_: With) -> None:
    """Jobs that run on it go on; new ones cannot be sent there."""
    with_.computes.delete(_own(name, with_).name)


@router.put("/default", status_code=204)
def set_default(data: Data, with_: With) -> None:
    with_.computes.send({}, default=with_.clusters.find(str(data["name"])).name)


@router.put("/map", status_code=204)
def stand_for(data: Data, with_: With) -> None:
    """Let names mean other computes; null: no longer."""
    goals = {
        name: None if goal is None else with_.clusters.find(goal).name
        for name, goal in data.items()
    }
    with_.computes.send(goals)


@router.get("/{name}")
def show(name: str, with_: With) -> dict[str, Any]:
    """All about it: its options, its hosts as the cluster tells them now, and what waits."""
    compute = with_.clusters.find(name)
    told: dict[str, Any] = {"hosts": [], "trouble": None}
    try:
        told["hosts"] = [_host(each) for each in _hosts(compute, with_)]
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
                "reason": shown.standing(row) or None,
            }
            for row in jobs
        ],
    }


def _own(name: str, with_: Services) -> Compute:
    """One that was made; the one that is always there cannot be changed."""
    compute = with_.clusters.find(name)
    if not any(row.name == compute.name for row in with_.computes.list()):
        raise Conflict(
            f"the compute {compute.name!r} is always there as it is",
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
        compute = compute.model_copy(update={"server_address": address})
    assert compute.server_address is not None
    if compute.server_address != mailbox.ADDRESS:
        await with_.door.open(compute.server_address)
    return compute


def _route(compute: Compute, with_: Services) -> str:
    """The address of this machine that its hosts are reached from: the kernel's own answer. Where
    it knows a way to none, there is still the disk they share."""
    for host in _hosts(compute, with_):
        try:
            found = socket.getaddrinfo(host.address or host.name, None, type=socket.SOCK_DGRAM)
            return network.source(str(found[0][4][0]))
        except OSError:
            continue
    return mailbox.ADDRESS


def _hosts(compute: Compute, with_: Services) -> list[Host]:
    engine = with_.clusters.engine_of(compute)
    return list(engine.hosts(with_.clusters.options(compute)))


def _door(with_: Services, address: str | None) -> str | None:
    if address == mailbox.ADDRESS:
        return f"a mailbox below {with_.home.nodes}"
    return with_.door.url(address) if address else None


def _host(host: Host) -> Mapping[str, Any]:
    return host._asdict()


def _brief(with_: Services, compute: Compute) -> dict[str, Any]:
    address = compute.server_address
    return {
        **compute.model_dump(mode="json"),
        "options": with_.clusters.options(compute),
        "is_default": compute.name == with_.clusters.find(None).name,
        "door": _door(with_, address),
        "door_trouble": with_.door.trouble.get(address or ""),
    }
