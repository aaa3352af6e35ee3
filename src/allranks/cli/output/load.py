"""Resource use in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.core.amounts import size_text

if TYPE_CHECKING:
    from allranks.api.common import Number

Load = Mapping[str, Any]


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


def total(several: Sequence[Load], name: str) -> float:
    return sum(float(each.get(name, 0)) for each in several)


def mean(several: Sequence[Load], name: str) -> float | None:
    values = [each[name] for each in several if name in each]
    return sum(values) / len(values) if values else None
