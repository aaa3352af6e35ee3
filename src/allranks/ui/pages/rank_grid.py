"""The grid of nodes and ranks on a job's page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allranks.api.metrics import NodeLoad, ShownJob

# Cells of ranks that a page shows.
_RANKS = 4096
# Ranks and nodes that a page shows at first: a node weighs as much as two ranks.
_PLACES = 160


class Cell(NamedTuple):
    """A rank in the grid. ``load``: percent of a GPU, or of the CPUs if it has none."""

    rank: int
    state: str
    load: float | None
    failed: bool


class Node(NamedTuple):
    number: int
    state: str
    host: str
    address: str
    load: NodeLoad | None
    ranks: list[Cell]


def nodes_of(job: ShownJob) -> list[Node]:
    """The grid of nodes and ranks. Ranks have the state of their node; the one that failed first
    is marked."""
    loads = {each["node"]: each for each in job.get("load", ())}
    failed = None if job["error"] is None else job["error"]["rank"]
    ranks: dict[int, list[int]] = {}
    for rank in job["ranks"][:_RANKS]:
        ranks.setdefault(rank["node"], []).append(rank["rank"])
    return [
        Node(
            node["node"],
            node["state"],
            node["host"] or "",
            node["address"] or "",
            loads.get(node["node"]),
            [
                Cell(
                    rank,
                    node["state"],
                    _load(loads.get(node["node"]), rank, ranks[node["node"]]),
                    failed == rank,
                )
                for rank in ranks.get(node["node"], ())
            ],
        )
        for node in job["node_states"]
    ]


def first_nodes(nodes: list[Node]) -> list[Node]:
    """Those that a page shows at first, in order: one that failed or is in another state than most
    is among them."""
    states = Counter(node.state for node in nodes)

    def order(node: Node) -> tuple[bool, int]:
        return not any(cell.failed for cell in node.ranks), states[node.state]

    first, left = list[Node](), _PLACES
    for node in sorted(nodes, key=order):
        left -= 2 + len(node.ranks)
        if first and left < 0:
            break
        first.append(node)
    return sorted(first)


def _load(node: NodeLoad | None, rank: int, ranks: list[int]) -> float | None:
    """The load of a rank's GPU, if each rank has one; else of its processes in CPUs."""
    if node is None or not node["now"]:
        return None
    gpus = node["gpus"]
    if gpus and len(gpus) == len(ranks):
        load = gpus[ranks.index(rank)].get("gpu_load")
    else:
        load = next((each.get("cpu") for each in node["ranks"] if each["rank"] == rank), None)
    return None if load is None else float(load)
