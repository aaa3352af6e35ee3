"""Which files of a folder are complete, by what several looks have seen of their writers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING

from allranks import clock
from allranks.agent.state.torn_files import Deaths
from allranks.agent.state.tree import FileState, Tree

if TYPE_CHECKING:
    from allranks.agent.state.renames import Renames

# Seconds after which an unchanged file counts as complete although it is open for writing: some
# programs never close their files.
_REST_SECONDS = 30.0
# Seconds that the time of a write may be after the death of its process, and that the agent may
# take to see a death.
_TICK, _REAP_SECONDS = 0.1, 1.0


class Writers:
    """The writers of the files of ``tree``. ``deaths``: those of this attempt's ranks."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.deaths = Deaths()
        self._renames: Renames | None = None
        self._open: set[str] = set()
        self._renamed: Set[str] = frozenset()
        # When each file that is open for writing was first seen so.
        self._open_since: dict[str, float] = {}
        # Files that are not sent yet and were closed at a look: as they were, and the first such
        # look, in seconds since the epoch.
        self._closed: dict[str, tuple[FileState, float]] = {}
        # Those that were closed when the agent was about to end its ranks.
        self._closed_at_stop: dict[str, FileState] = {}

    def begin_attempt(self, deaths: Deaths) -> None:
        """Ranks start. After one has died by force, a closed file is no longer a complete one."""
        self.deaths, self._closed, self._closed_at_stop = deaths, {}, {}
        deaths.looks.append(self._look_before_stop)

    def _look_before_stop(self) -> None:
        """From another thread than the other looks."""
        since = time.time() - _REST_SECONDS
        files = self._tree.scan().files
        recent = [p for p, seen in files.items() if seen.what == "file" and _is_newer(seen, since)]
        self._closed_at_stop = {p: files[p] for p in recent if not self._tree.is_open(p)}

    def watch(self) -> None:
        """See from now on which files are put in place by a rename."""
        if self._renames is None:
            from allranks.agent.state.renames import Renames  # lazy: ctypes; most states are empty

            self._renames = Renames(self._tree.root)
            self._renames.watch(self._tree.parts)

    def close(self) -> None:
        if self._renames is not None:
            self._renames.close()
            self._renames = None

    def look(self, paths: Iterable[str], seen: Mapping[str, FileState]) -> set[str]:
        """Look at these changed files, as a scan has just ``seen`` them. Returns those that are
        open for writing."""
        now, at, before = time.monotonic(), clock.now(), self._closed
        paths = list(paths)
        self._open = {path for path in paths if self._tree.is_open(path)}
        # Later than both: whoever has written to one since the scan has closed it, or has it open.
        self._renamed = self._look_at_renames(seen)
        self._open_since = {path: self._open_since.get(path, now) for path in self._open}
        self._closed = {path: (seen[path], at) for path in paths if path not in self._open}
        for path, (state, first) in before.items():
            if path in self._closed and state == seen[path]:
                self._closed[path] = state, first
        return self._open

    def opened_lately(self, path: str) -> bool:
        """Whether an open file may be part of a checkpoint: a log grows for long."""
        return time.monotonic() - self._open_since[path] < _REST_SECONDS

    def is_complete(self, path: str, seen: FileState, unchanged: bool) -> bool:
        """Whether a file is complete, which is ``unchanged`` since the look before the last."""
        if seen.fingerprint is None:
            return True
        if path in self._open:
            return unchanged and time.time() - seen.mtime_ns / 1e9 > _REST_SECONDS
        if path in self._renamed:
            return True
        if self.deaths.began is not None and seen.what == "file":
            return self._was_closed(path, seen, self.deaths.began)
        return unchanged

    def suspects(self, seen: Mapping[str, FileState]) -> list[str]:
        """After all ranks have ended: the files of those ``seen`` that a killed rank may have been
        writing."""
        killed, began = self.deaths.killed, self.deaths.began
        if killed is None or began is None:
            return []
        renamed = self._look_at_renames(seen)
        return [
            path
            for path, each in seen.items()
            if each.what == "file"
            and path not in renamed
            and not _is_newer(each, killed + _TICK)  # else by a rank that had time to end
            and not self._was_closed(path, each, began)
        ]

    def _was_closed(self, path: str, seen: FileState, at: float) -> bool:
        """Whether a look before then, when all ranks lived, has seen it closed and as it is."""
        state, look = self._closed.get(path, (None, math.inf))
        was_closed = state == seen and look < at - _REAP_SECONDS
        return was_closed or self._closed_at_stop.get(path) == seen

    def _look_at_renames(self, seen: Mapping[str, FileState]) -> Set[str]:
        if self._renames is None:
            return frozenset()
        renamed = self._renames.look()
        self._renames.watch([*self._tree.parts, *(p for p in seen if seen[p].what == "folder")])
        return renamed


def _is_newer(seen: FileState, at: float) -> bool:
    return seen.mtime_ns / 1e9 > at
