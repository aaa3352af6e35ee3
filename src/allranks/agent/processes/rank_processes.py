"""Which processes belong to which rank, and which to the job.

Each rank is started below the agent in its own process group. The agent inherits all orphans below
it (see keeper). Orphans are assigned to a rank by their group, and always to the job.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# The share of one CPU that listing processes may take.
_SHARE = 0.003


class Members(NamedTuple):
    """``ranks``: the processes of each rank, its first one first. ``job``: the processes of all
    ranks, and other processes below the agent that are not our helpers."""

    ranks: dict[int, list[int]]
    job: list[int]


class RankProcesses:
    """The processes of each rank: the first one and its descendants. Updated as often as is
    cheap."""

    def __init__(self) -> None:
        self._latest = Members({}, [])
        self._roots: dict[int, int] = {}
        self._again = self._at = 0.0

    def members(self, roots: Mapping[int, int], age: float = math.inf) -> dict[int, list[int]]:
        """The processes of each rank, at most ``age`` seconds old; ``roots`` are their first
        processes."""
        return self.look(roots, age).ranks

    def look(self, roots: Mapping[int, int], age: float = math.inf) -> Members:
        """The same, with the processes of the job."""
        now = time.monotonic()
        if now >= min(self._again, self._at + age) or roots != self._roots:
            self._at = now
            self._roots = dict(roots)
            self._latest = _members(roots)
            self._again = now + (time.monotonic() - now) / _SHARE
        return self._latest


def _members(roots: Mapping[int, int]) -> Members:
    tree = Tree()
    ranks = {rank: tree.family(root) for rank, root in roots.items()}
    me = os.getpid()
    firsts = {*roots.values()}
    others = [pid for pid in tree.children.get(me, ()) if pid not in firsts and not _is_ours(pid)]
    several = (pid for pids in (*ranks.values(), tree.below(others)) for pid in pids)
    return Members(ranks, list(dict.fromkeys(several)))


class Tree:
    """All processes of this machine by parent and by group."""

    def __init__(self) -> None:
        self.children: dict[int, list[int]] = {}
        self._groups: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    with open(f"/proc/{name}/stat", "rb") as file:
                        parent, group = file.read().rpartition(b")")[2].split()[1:3]
                    self.children.setdefault(int(parent), []).append(int(name))
                    self._groups.setdefault(int(group), []).append(int(name))

    def below(self, roots: Iterable[int]) -> list[int]:
        """The roots and all their descendants."""
        pids = list(roots)
        for pid in pids:  # it grows meanwhile
            pids += self.children.get(pid, [])
        return pids

    def family(self, root: int) -> list[int]:
        """The process, its descendants, and orphans of its group with their descendants."""
        return list(dict.fromkeys(self.below([root, *self._groups.get(root, ())])))


def families(roots: Iterable[int]) -> dict[int, list[int]]:
    """The family of each root."""
    tree = Tree()
    return {root: tree.family(root) for root in roots}


def _is_ours(pid: int) -> bool:
    """Whether it is a helper of the agent (data, metrics, MLflow)."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return is_ours(file.read())
    return True  # it has ended


def is_ours(words: bytes) -> bool:
    """The same, by the command line in /proc."""
    return b"\0allranks.agent." in words or b"/agent/programs/relay.py\0" in words
