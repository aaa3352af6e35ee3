"""The resources of this machine, and those that a gang needs."""

from __future__ import annotations

import os
from typing import NamedTuple

from allranks.core.plan import Gang


class Capacity(NamedTuple):
    """An amount of resources; memory in bytes."""

    nodes: int = 64
    gpus: int = 0
    cpus: float = 1.0
    memory: int = 0
    # Not the kernel's limit: far more than any training needs, far less than overloads a machine.
    processes: int = 512

    def minus(self, other: Capacity) -> Capacity:
        return Capacity._make(max(0, a - b) for a, b in zip(self, other, strict=True))

    def plus(self, other: Capacity) -> Capacity:
        return Capacity._make(a + b for a, b in zip(self, other, strict=True))

    def missing(self, need: Capacity) -> list[str]:
        """Describe each amount of ``need`` that exceeds this; empty if it fits."""
        return [
            f"{needed:.15g} {names[needed != 1]} ({available:.15g} available)"
            for names, available, needed in zip(_NAMES, self, need, strict=True)
            if needed > available
        ]


_NAMES = (
    ("node", "nodes"),
    ("GPU", "GPUs"),
    ("CPU", "CPUs"),
    ("byte of memory", "bytes of memory"),
    ("process", "processes"),
)


def this_machine() -> Capacity:
    """Return what the kernel reports; CPUs are those this process may run on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = [n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()]
    return Capacity(gpus=len(gpus), cpus=len(os.sched_getaffinity(0)), memory=memory)


def need(gang: Gang) -> Capacity:
    """Return what the whole gang needs. CPUs and memory count only if it requests them."""
    n = gang.nodes
    cpus, memory = n * (gang.cpus or 0), n * (gang.memory or 0)
    return Capacity(n, n * gang.gpus, cpus, memory, n * gang.processes)
