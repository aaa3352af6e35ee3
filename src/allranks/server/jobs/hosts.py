"""The hosts of a job's nodes."""

from __future__ import annotations

from functools import partial

from allranks.core import node_names
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
