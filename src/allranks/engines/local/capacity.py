"""What a machine has to give, and what a gang takes of it."""

from __future__ import annotations

import os
from typing import NamedTuple

from allranks.plan.plan import Gang


class Capacity(NamedTuple):
    """What this machine has to give; memory in bytes."""

    nodes: int = 64
    gpus: int = 0
    cpus: float = 1.0
    memory: int = 0
    # Not the kernel's limit: far beyond what trains, and far below what brings a machine down.
    processes: int = 512

    def minus(self, other: Capacity) -> Capacity:
        return Capacity(
            max(0, self.nodes - other.nodes),
            max(0, self.gpus - other.gpus),
            max(0, self.cpus - other.cpus),
            max(0, self.memory - other.memory),
            max(0, self.processes - other.processes),
        )

    def plus(self, other: Capacity) -> Capacity:
        return Capacity(
            self.nodes + other.nodes,
            self.gpus + other.gpus,
            self.cpus + other.cpus,
            self.memory + other.memory,
            self.processes + other.processes,
        )

    def short_of(self, need: Capacity) -> list[str]:
        """What ``need`` asks beyond this, in words; empty when it fits."""
        return [
            f"{asked:.15g} {word} ({has:.15g} {'is' if has == 1 else 'are'} there)"
            for words, has, asked in zip(_WORDS, self, need, strict=True)
            for word in [words[asked != 1]]
            if asked > has
        ]


_WORDS = (
    ("node", "nodes"),
    ("GPU", "GPUs"),
    ("CPU", "CPUs"),
    ("byte of memory", "bytes of memory"),
    ("process", "processes"),
)
NOTHING = Capacity(0, 0, 0.0, 0, 0)


def this_machine() -> Capacity:
    """What the kernel says this machine has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = [n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()]
    return Capacity(gpus=len(gpus), cpus=len(os.sched_getaffinity(0)), memory=memory)


def need(gang: Gang) -> Capacity:
    """What the whole gang takes. CPUs and memory count only when it names them."""
    n = gang.nodes
    cpus, memory = n * (gang.cpus or 0), n * (gang.memory or 0)
    return Capacity(n, n * gang.gpus, cpus, memory, n * gang.processes)
