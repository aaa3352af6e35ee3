"""Resource use in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.cli.output import show
from allranks.core.amounts import size_text

if TYPE_CHECKING:
    from allranks.api.common import Number
    from allranks.api.metrics import NodeLoad

Load = Mapping[str, Any]

# The most bars of a drawing: each is the highest of several nodes where there are more.
_BARS = 48


def percent(value: Number | None) -> str:
    return "-" if value is None else f"{float(value):.0f} %"


def memory(load: Load, name: str = "memory") -> str:
    """Used and total memory."""
    used = load.get(name)
    total = load.get(f"{name}_total")
    if used is None:
        return "-"
    return size_text(used) + (f" of {size_text(total)}" if total else "")


def rate(load: Load, *names: str) -> str:
    """The sum of all rates."""
    values = [load[name] for name in names if name in load]
    return f"{size_text(sum(values))}/s" if values else "-"


def gpu(load: Load) -> str:
    parts = [f"load {percent(load.get('gpu_load'))}", f"memory {memory(load, 'gpu_memory')}"]
    if "gpu_power" in load:
        parts.append(f"{load['gpu_power']:.0f} W")
    if "gpu_temperature" in load:
        parts.append(f"{load['gpu_temperature']:.0f} °C")
    return ", ".join(parts)


def own(load: Load) -> str:
    """The use of a job on a node."""
    parts = [f"cpu {percent(load.get('cpu'))}", f"memory {memory(load)}"]
    parts += [f"disk {rate(load, 'disk_read', 'disk_write')}"]
    return ", ".join(parts)


def node(load: Load) -> str:
    """The use of the whole node."""
    return f"{own(load)}, network {rate(load, 'net_in', 'net_out')}"


def summed(several: Sequence[Load], *names: str) -> Load:
    """The sum of each amount, of those that have it."""
    return {
        name: sum(float(load[name]) for load in several if name in load)
        for name in names
        if any(name in load for load in several)
    }


def mean(several: Sequence[Load], name: str) -> float | None:
    values = [load[name] for load in several if name in load]
    return sum(values) / len(values) if values else None


def hosts(nodes: Sequence[NodeLoad]) -> list[NodeLoad]:
    """A node of each host: some computes have several nodes on one."""
    return [*{node["host"] or node["node"]: node for node in nodes}.values()]


def summary(nodes: Sequence[NodeLoad]) -> list[tuple[str, str]]:
    """The use of many nodes in a few lines: a bar for each, and the node with the most."""
    first, last = nodes[0]["node"], nodes[-1]["node"]
    gaps = "" if last - first + 1 == len(nodes) else " (others have not reported)"
    rows = [("nodes", f"{len(nodes)}{gaps}; each bar is a node, from {first} to {last}")]
    amounts: list[tuple[str, Callable[[NodeLoad], Number | None], Callable[[float], str]]] = [
        (" cpu", lambda node: node.get("cpu"), percent),
        (" memory", lambda node: node.get("memory"), size_text),
        (" gpu", lambda node: mean(node["gpus"], "gpu_load"), percent),
        (" all cpu", lambda node: node["node_load"].get("cpu"), percent),
        (" all memory", lambda node: node["node_load"].get("memory"), size_text),
    ]
    for name, value_of, text in amounts:
        values = {
            node["node"]: float(value) for node in nodes if (value := value_of(node)) is not None
        }
        if values:
            most = max(values, key=lambda node: values[node])
            low, high = text(min(values.values())), text(values[most])
            amount = low if low == high else f"{low} to {high}, the most on node {most}"
            bars = heat([value_of(node) for node in nodes], full=100 if text is percent else None)
            rows.append((name, f"{bars}  {amount}"))
    if bars := of_ranks(nodes, _BARS):
        rows.append((" ranks' cpu", bars))
    return rows


def of_ranks(nodes: Sequence[NodeLoad], bars: int) -> str:
    """The CPU use of several ranks as bars; empty if there is one."""
    ranks = sorted(
        (rank for node in nodes for rank in node["ranks"]), key=lambda rank: rank["rank"]
    )
    return heat([rank.get("cpu") for rank in ranks], bars, full=100) if len(ranks) > 1 else ""


def heat(values: Sequence[Number | None], bars: int = _BARS, full: float | None = None) -> str:
    """A bar for each value, or for the highest of several, from 0 to the highest, or to ``full``
    if that is more."""
    size = -(-len(values) // bars)
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    highest = [max((value for value in part if value is not None), default=None) for part in parts]
    return show.sparkline(highest, least=0.0, full=full)
