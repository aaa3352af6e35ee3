"""Computes: what runs on each host, what is used and free, and why each job waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.errors import AllranksError
from allranks.ui import render
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.computes import ComputeAnswer, HostAnswer


class Use(NamedTuple):
    """Of CPUs or GPUs: ``ours``, ``others`` and ``free`` add up to ``total``. ``requested``: by our
    jobs, which is more than ``ours`` where they share."""

    ours: float
    others: float
    free: float
    total: float
    requested: float


async def page(request: Request) -> Response:
    session: Session = request.state.session
    listed = (await session.get(routes.list_computes))["computes"]
    shown = await asyncio.gather(*(_one(session, each) for each in listed))
    return render.page(request, "computes.html", computes=shown)


async def _one(session: Session, compute: ComputeAnswer) -> dict[str, Any]:
    """A compute with its hosts, how they are used, and the jobs that are on none of them;
    ``trouble`` if its cluster does not answer."""
    try:
        shown = await session.get(routes.show_compute, compute["name"])
    except AllranksError as error:
        return {**compute, "hosts": [], "jobs": [], "trouble": str(error)}
    hosts = [(host, use(host, "cpus"), use(host, "gpus")) for host in shown["hosts"]]
    placed = {run["job"] for host in shown["hosts"] for run in host["runs"]}
    return {
        **shown,
        "hosts": hosts,
        "cpus": summed([cpus for _, cpus, _ in hosts]),
        "gpus": summed([gpus for _, _, gpus in hosts]),
        "queue": [job for job in shown["jobs"] if job["name"] not in placed],
        "statuses": {job["name"]: job["status"] for job in shown["jobs"]},
    }


def use(host: HostAnswer, what: Literal["cpus", "gpus"]) -> Use | None:
    """None if there are none, or if the cluster does not say what is free."""
    total = host[what]
    free = host["free_cpus"] if what == "cpus" else host["free_gpus"]
    if not total or free is None:
        return None
    requested = sum(run[what] for run in host["runs"])
    ours = min(requested, total - free)
    return Use(ours, total - free - ours, free, total, requested)


def summed(uses: list[Use | None]) -> Use | None:
    """None if one of them is unknown, or all are."""
    parts = [part for part in uses if part is not None]
    return Use(*map(sum, zip(*parts, strict=True))) if parts else None
