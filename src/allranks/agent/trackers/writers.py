"""Which rank writes a file of a tracker."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from allranks.agent.processes.rank_processes import families
from allranks.core.distributions.topology import ranks_of
from allranks.core.plan import Task

# TensorBoard puts the host and the process into the name.
_EVENTS = re.compile(r"tfevents\.\d+\.(?P<host>.+)\.(?P<pid>\d+)\.\d+(\.|$)")


class Writers:
    """The ranks of a node whose working folder is ``work``."""

    def __init__(self, task: Task, node: int, work: Path) -> None:
        self._ranks = [member.rank for member in ranks_of(task, node)]
        self._is_first, self._is_alone = node == 0, task.nodes == 1
        # Folders in which nobody else writes.
        own = [] if task.in_place else [work, *([Path(task.record)] if self._is_alone else [])]
        self._own = [os.path.realpath(folder) for folder in own]
        self._has_pids = task.container is None
        # The rank of each process that was seen, and of each file that one has open, by its name.
        self._pids: dict[int, int] = {}
        self._open: dict[str, int] = {}

    def see(self, ranks: Mapping[int, Iterable[int]]) -> None:
        """Note the processes of ranks."""
        for rank, pids in ranks.items():
            self._pids.update(dict.fromkeys(pids, rank))

    def look(self, roots: Mapping[int, int]) -> None:
        """Note the processes of ranks, of which ``roots`` are the first, and their open files."""
        processes = families(roots.values())
        self.see({rank: processes[root] for rank, root in roots.items()})
        seen = list(self._pids.items())
        self._open = {name: rank for pid, rank in seen for name in _open_files(pid)}

    def of(self, path: Path, is_last: bool) -> int | None:
        """The rank of which a process has the file open or is in its name; else, where nobody else
        writes, the node's first. None if another node or program may have written it; of these, the
        first node takes what nobody has open the last time."""
        if (rank := self._open.get(path.name)) is not None:
            return rank
        is_own = any(path.is_relative_to(folder) for folder in self._own)
        named = _EVENTS.search(path.name) if self._has_pids else None
        if named is not None:
            is_here = is_own or named["host"] == socket.gethostname()
            rank = self._pids.get(int(named["pid"])) if is_here else None
            if rank is not None or not (is_own or self._is_alone):
                return rank
        # Trackio closes its database after each write.
        is_left = path.suffix == ".db" or (is_last and not _is_open(path))
        return self._ranks[0] if is_own or (self._is_first and is_left) else None


def _is_open(path: Path) -> bool:
    """Whether a process of this machine has the file open."""
    return any(path.name in _open_files(int(pid)) for pid in os.listdir("/proc") if pid.isdigit())


def _open_files(pid: int) -> set[str]:
    """The names of the files that a process has open."""
    names = set[str]()
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                names.add(os.path.basename(os.readlink(f"/proc/{pid}/fd/{entry}")))
    return names
