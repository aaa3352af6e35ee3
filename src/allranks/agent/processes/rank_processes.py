"""Which processes belong to which rank, and which to the job at all.

Ranks are started in groups of their own, below the agent. The agent inherits every orphan below it
(see keeper): what a rank has left behind is known by its group, and is the job's in any case.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# The share of one CPU that looking for processes may take.
_SHARE = 0.003


class Members(NamedTuple):
    """``ranks``: the processes of each, its first one before the others. ``job``: those of all
    ranks, and whatever else runs below the agent that is not the platform's."""

    ranks: dict[int, list[int]]
    job: list[int]


class RankProcesses:
    """The processes of ranks: each one's first, and what came from that. Who belongs to whom is
    looked up as often as it is cheap."""

    def __init__(self) -> None:
        self._found = Members({}, [])
        self._roots: dict[int, int] = {}
        self._again = self._at = 0.0

    def members(self, roots: Mapping[int, int], age: float = math.inf) -> dict[int, list[int]]:
        """The processes of each rank, as they were ``age`` seconds ago at the most; ``roots`` are
        their first ones."""
        return self.look(roots, age).ranks

    def look(self, roots: Mapping[int, int], age: float = math.inf) -> Members:
        """The same with all of the job."""
        now = time.monotonic()
        if now >= min(self._again, self._at + age) or roots != self._roots:
            self._at = now
            self._roots = dict(roots)
            self._found = _members(roots)
            self._again = now + (time.monotonic() - now) / _SHARE
        return self._found


def _members(roots: Mapping[int, int]) -> Members:
    tree = Tree()
    ranks = {rank: tree.family(root) for rank, root in roots.items()}
    me, firsts = os.getpid(), {*roots.values()}
    others = [pid for pid in tree.children.get(me, ()) if pid not in firsts and not _is_ours(pid)]
    several = (pid for each in (*ranks.values(), tree.below(others)) for pid in each)
    return Members(ranks, list(dict.fromkeys(several)))


class Tree:
    """All processes of this machine, by their parents and by their groups."""

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
        """These, then all that came from them."""
        found = list(roots)
        for pid in found:  # it grows meanwhile
            found += self.children.get(pid, [])
        return found

    def family(self, root: int) -> list[int]:
        """Itself, its descendants, and orphans of its group with theirs."""
        return list(dict.fromkeys(self.below([root, *self._groups.get(root, ())])))


def families(roots: Iterable[int]) -> dict[int, list[int]]:
    """The family of each."""
    tree = Tree()
    return {root: tree.family(root) for root in roots}


def _is_ours(pid: int) -> bool:
    """Whether it is one of the agent's own, that moves data, reads metrics or leads to MLflow."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return is_ours(file.read())
    return True  # gone meanwhile


def is_ours(words: bytes) -> bool:
    """The same, by the command line as /proc has it."""
    return b"\0allranks.agent." in words or b"/agent/programs/relay.py\0" in words
