"""The hosts of a job's nodes."""

from __future__ import annotations

from functools import partial

from allranks.api.computes import RunsOnHost
from allranks.core import node_names
from allranks.engines.base import Host
from allranks.statuses import NodeState
from allranks.store.jobs.job_rows import JobRow


def host_of(row: JobRow, node: int | None) -> str | None:
    """The node's host; None if it is unknown, or if the job runs on this machine."""
    nodes = row.record.nodes
    if node is None or node >= len(nodes) or not row.plan.server_address:
        return None
    place = nodes[node].place
    return place.host if place is not None else None


def with_host(row: JobRow, text: str) -> str:
    """The text, with its host behind the first node that it names."""
    return node_names.with_host(text, partial(host_of, row))


def on_host(row: JobRow, host: Host) -> RunsOnHost | None:
    """The job's nodes that are on the host now; None if none is."""
    over = (NodeState.EXITED, NodeState.LOST)
    nodes = [
        number
        for number, node in enumerate(row.record.nodes)
        if node.place is not None
        and node.state not in over
        and (host.address == node.place.address or _short(host.name) == _short(node.place.host))
    ]
    task = row.plan.task
    cpus = max(row.plan.gang.cpus or 0, task.procs)
    if not nodes:
        return None
    return {
        "job": row.name,
        "nodes": nodes,
        "ranks": len(nodes) * task.procs,
        "cpus": len(nodes) * cpus,
        "gpus": len(nodes) * task.gpus,
    }


def _short(name: str) -> str:
    """Without the domain: clusters and machines do not agree on it."""
    return name.partition(".")[0]
