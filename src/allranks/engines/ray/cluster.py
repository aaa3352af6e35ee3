"""Translate Ray's nodes and actors into hosts and gang statuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from allranks.core.amounts import counted
from allranks.engines.base import GangStatus, Host
from allranks.engines.ray.dashboard_client import Dashboard
from allranks.engines.ray.driver import AllranksNode
from allranks.statuses import GangState

_ACTORS = (
    "/api/v0/actors?limit=10000"
    f"&filter_keys=class_name&filter_predicates=%3D&filter_values={AllranksNode.__name__}"
)
_NODES = "/api/v0/nodes?limit=10000&detail=true"
_WAITING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION")

Row = Mapping[str, Any]
T = TypeVar("T")


def placed(dashboard: Dashboard, jobs: Sequence[Row]) -> dict[str, GangStatus]:
    """Return the status of each job whose driver runs. Takes one request, and a second one while a
    gang waits for nodes."""
    actors: dict[str, dict[int, str]] = {}
    for row in dashboard.state(_ACTORS):
        name, _, node = (row["name"] or "").rpartition(".")
        if node.isascii() and node.isdigit() and len(node) < 7:
            actors.setdefault(name, {})[int(node)] = row["state"]
    statuses, waiting = {}, []
    for job in jobs:
        name, states = job["submission_id"], actors.get(job["submission_id"], {})
        lost = tuple(sorted(node for node, state in states.items() if state == "DEAD"))
        if len(states) < _gang(job)["nodes"]:
            statuses[name] = GangStatus(GangState.PROVISIONING, "its driver is starting")
        elif any(state in _WAITING for state in states.values()):
            waiting.append(job)
        else:
            statuses[name] = GangStatus(GangState.UP, lost=lost)
    nodes = dashboard.state(_NODES) if waiting else []
    for job in waiting:
        why = _waits_for(_gang(job), nodes)
        statuses[job["submission_id"]] = GangStatus(GangState.PROVISIONING, why)
    return statuses


def shortage(dashboard: Dashboard, nodes: int, bundle: Mapping[str, float]) -> str:
    """Explain why the cluster can never have that many nodes with ``bundle``; empty if it may.

    All hosts that Ray knows count, including dead ones, which may be booted again. If the cluster
    has an autoscaler, or if that is unknown, any number of nodes may appear.
    """
    data = dashboard.json("/api/cluster_status")["data"]
    report = (data.get("clusterStatus") or {}).get("autoscalerReport") or {}
    types = (report.get("nodeTypeMapping") or {}).values()
    # Without an autoscaler Ray reports one made-up node type for each node.
    if not types or not all(re.fullmatch(r"node_[0-9a-f]{56}", name) for name in types):
        return ""
    rows = [(row["node_ip"], row["state"] == "ALIVE", row) for row in dashboard.state(_NODES)]
    fit = len(_fitting(_one_per_host(rows), bundle))
    if fit >= nodes:
        return ""
    return f"it needs {counted(nodes, 'node')} with {describe(bundle)} each, {fit} available"


def hosts(dashboard: Dashboard) -> list[Host]:
    """Return Ray's nodes, without dead ones whose host is back. Free amounts are seconds old."""
    data = dashboard.json("/nodes?view=summary")["data"]
    logical = data.get("nodeLogicalResources") or {}
    rows = [_host(row, logical) for row in data["summary"]]
    unique = _one_per_host([(host.address, host.ready, host) for host in rows])
    return sorted(unique, key=lambda host: (host.name, host.address))


def _one_per_host(rows: Sequence[tuple[str, bool, T]]) -> list[T]:
    """Of (address, alive, node): all living nodes, and one dead node of each other address."""
    living = {address for address, alive, _ in rows if alive}
    dead = {address: node for address, _, node in rows if address not in living}
    return [node for _, alive, node in rows if alive] + list(dead.values())


def describe(bundle: Mapping[str, float]) -> str:
    """Describe a bundle for people: ``2 CPUs and 1 GPU``."""
    parts = []
    for name, amount in bundle.items():
        if name in ("CPU", "GPU"):
            parts.append(counted(amount, name))
        elif name == "memory":
            parts.append(f"{amount / (1 << 30):.3g} GiB of memory")
        else:
            parts.append(f"{amount:g} {name}")
    return " and ".join(", ".join(parts).rsplit(", ", 1))


def _gang(job: Row) -> dict[str, Any]:
    gang: dict[str, Any] = json.loads(job["metadata"]["allranks"])
    return gang


def _waits_for(gang: Row, nodes: Sequence[Row]) -> str:
    available = len(_fitting([row for row in nodes if row["state"] == "ALIVE"], gang["each"]))
    needed = f"{counted(gang['nodes'], 'node')} with {describe(gang['each'])} each"
    if available < gang["nodes"]:
        return f"waits for {needed}: {available} available"
    return f"waits for {needed} to be free, and to start"


def _fitting(rows: Iterable[Row], bundle: Mapping[str, float]) -> list[Row]:
    def fits(row: Row) -> bool:
        has = row.get("resources_total") or {}
        return all(has.get(name, 0) >= amount for name, amount in bundle.items())

    return [row for row in rows if fits(row)]


def _host(row: Row, logical: Mapping[str, str]) -> Host:
    raylet = row["raylet"]
    total = raylet.get("resourcesTotal") or {}
    # "1.0/4.0 CPU (…)", used and total: Ray has this only as text, unless each node is queried.
    used = {
        name: float(amount)
        for amount, name in re.findall(
            r"([\d.]+)/[\d.]+ (CPU|GPU)\b", logical.get(raylet.get("nodeId", ""), "")
        )
    }
    cpus = float(total.get("CPU", 0))
    gpus = int(total.get("GPU", 0))
    alive = raylet.get("state") == "ALIVE"
    return Host(
        row.get("hostname") or raylet.get("nodeManagerHostname") or row.get("ip") or "",
        row.get("ip") or raylet.get("nodeManagerAddress") or "",
        str(raylet.get("state", "")).lower(),
        alive,
        cpus,
        cpus - used.get("CPU", 0.0) if alive else 0.0,
        gpus,
        int(gpus - used.get("GPU", 0.0)) if alive else 0,
        int(total.get("memory", 0)),
        raylet.get("stateMessage") or "",
    )
