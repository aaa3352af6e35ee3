"""What Ray tells of its nodes and actors, in our words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from allranks.engines.base import GangStatus, Host
from allranks.engines.node_names import available
from allranks.engines.ray.dashboard_client import Dashboard
from allranks.engines.ray.driver import AllranksNode
from allranks.plan.amounts import counted
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
    """Of jobs whose driver runs: whether their nodes are there. One question, and one more for the
    cluster's nodes while some gang waits."""
    actors: dict[str, dict[int, str]] = {}
    for row in dashboard.state(_ACTORS):
        name, _, node = (row["name"] or "").rpartition(".")
        if node.isdigit():
            actors.setdefault(name, {})[int(node)] = row["state"]
    found, waiting = {}, []
    for job in jobs:
        name, states = job["submission_id"], actors.get(job["submission_id"], {})
        lost = tuple(sorted(node for node, state in states.items() if state == "DEAD"))
        if len(states) < _gang(job)["nodes"]:
            found[name] = GangStatus(GangState.PROVISIONING, "its driver starts")
        elif any(state in _WAITING for state in states.values()):
            waiting.append(job)
        else:
            found[name] = GangStatus(GangState.UP, lost=lost)
    nodes = dashboard.state(_NODES) if waiting else []
    for job in waiting:
        found[job["submission_id"]] = GangStatus(
            GangState.PROVISIONING, _waits_for(_gang(job), nodes)
        )
    return found


def lack(dashboard: Dashboard, nodes: int, each: Mapping[str, float]) -> str:
    """Why so many nodes with ``each`` will never be there; empty if they may be.

    Every host is counted that Ray knows of, the dead as well: one that is booted is back. Where
    an autoscaler may add others, or nobody says that there is none, all may be.
    """
    told = dashboard.json("/api/cluster_status")["data"]
    report = (told.get("clusterStatus") or {}).get("autoscalerReport") or {}
    types = (report.get("nodeTypeMapping") or {}).values()
    # What stands in for an autoscaler where there is none makes up a type for each node it sees.
    if not types or not all(re.fullmatch(r"node_[0-9a-f]{56}", each) for each in types):
        return ""
    known = [(row["node_ip"], row["state"] == "ALIVE", row) for row in dashboard.state(_NODES)]
    fit = len(_fitting(_once(known), each))
    return (
        f"it needs {counted(nodes, 'node')} with {words(each)} each, {available(fit)}"
        if fit < nodes
        else ""
    )


def hosts(dashboard: Dashboard) -> list[Host]:
    """Ray's nodes, but for the dead whose host is back; what is free is some seconds old."""
    told = dashboard.json("/nodes?view=summary")["data"]
    logical = told.get("nodeLogicalResources") or {}
    found = [_host(row, logical) for row in told["summary"]]
    once = _once([(host.address, host.ready, host) for host in found])
    return sorted(once, key=lambda host: (host.name, host.address))


def _once(known: Sequence[tuple[str, bool, T]]) -> list[T]:
    """Of what is known by address, and is alive or not: all that is alive, and of each address
    where nothing is, one of the dead."""
    alive = [each for _, up, each in known if up]
    addresses = {address for address, up, _ in known if up}
    dead = {address: each for address, up, each in known if not up and address not in addresses}
    return alive + list(dead.values())


def words(each: Mapping[str, float]) -> str:
    """A bundle for people: ``2 CPUs and 1 GPU``."""
    parts = []
    for name, amount in each.items():
        if name in ("CPU", "GPU"):
            parts.append(counted(amount, name))
        elif name == "memory":
            parts.append(f"{amount / (1 << 30):.3g} GiB of memory")
        else:
            parts.append(f"{amount:g} {name}")
    return " and ".join(", ".join(parts).rsplit(", ", 1))


def _gang(job: Row) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(job["metadata"]["allranks"])
    return told


def _waits_for(gang: Row, nodes: Sequence[Row]) -> str:
    there = len(_fitting([row for row in nodes if row["state"] == "ALIVE"], gang["each"]))
    wanted = f"{counted(gang['nodes'], 'node')} with {words(gang['each'])} each"
    if there < gang["nodes"]:
        return f"waits for {wanted}: {available(there)}"
    return f"waits for {wanted} to be free, and to start"


def _fitting(rows: Iterable[Row], each: Mapping[str, float]) -> list[Row]:
    def fits(row: Row) -> bool:
        has = row.get("resources_total") or {}
        return all(has.get(name, 0) >= amount for name, amount in each.items())

    return [row for row in rows if fits(row)]


def _host(row: Row, logical: Mapping[str, str]) -> Host:
    raylet = row["raylet"]
    total = raylet.get("resourcesTotal") or {}
    # "1.0/4.0 CPU (…)": used and had, in words for people, and nowhere else in one question.
    used = {
        name: float(amount)
        for amount, name in re.findall(
            r"([\d.]+)/[\d.]+ (CPU|GPU)\b", logical.get(raylet.get("nodeId", ""), "")
        )
    }
    cpus, gpus = float(total.get("CPU", 0)), int(total.get("GPU", 0))
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
