"""Which files of a folder are complete, by what several looks have seen of their writers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set

from allranks.agent.state.renames import Renames
from allranks.agent.state.torn_files import Deaths
from allranks.agent.state.tree import FileState, Tree

# Seconds after which an unchanged file counts as complete although it is open for writing: some
# programs never close their files.
_REST_SECONDS = 30.0
# Seconds that the time of a write may be after the death of its process.
_TICK = 0.1


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

    def begin_attempt(self, deaths: Deaths, watch: bool) -> None:
        """Ranks start. ``watch``: see which files are put in place by a rename."""
        self.deaths = deaths
        if watch and self._renames is None:
            self._renames = Renames(self._tree.root)
            self._renames.watch(self._tree.parts)

    def close(self) -> None:
        if self._renames is not None:
            self._renames.close()
            self._renames = None

    def look(self, paths: Iterable[str], states: Mapping[str, FileState]) -> set[str]:
        """Look at these changed files, whose ``states`` a scan has just read. Returns those
        that are open for writing."""
        now = time.monotonic()
        files = (path for path in paths if states[path].what == "file")
        self._open = {path for path in files if self._tree.is_open(path)}
        # Later than both: whoever has written to one since the scan has closed it, or has it open.
        self._renamed = self._look_at_renames(states)
        self._open_since = {path: self._open_since.get(path, now) for path in self._open}
        return self._open

    def opened_lately(self, path: str) -> bool:
        """Whether an open file may be part of a checkpoint: a log grows for long."""
        return time.monotonic() - self._open_since[path] < _REST_SECONDS

    def is_complete(self, path: str, state: FileState, unchanged: bool) -> bool:
        """Whether a file is complete, which is ``unchanged`` since the look before the last."""
        if state.what == "folder":
            return True
        if path in self._open:
            return unchanged and time.time() - state.mtime_ns / 1e9 > _REST_SECONDS
        if path in self._renamed:
            return True
        # A dead process has no file open, whether it had written all of it or not.
        return unchanged and not (self.deaths.begun and state.what == "file")

    def suspects(self, states: Mapping[str, FileState]) -> list[str]:
        """After all ranks have ended: the files of ``states`` that a killed rank may have been
        writing."""
        if self.deaths.killed is None:
            return []
        # What is newer was written by a rank that had time to end.
        latest, renamed = self.deaths.killed + _TICK, self._look_at_renames(states)
        return [
            path
            for path, file in states.items()
            if file.what == "file" and path not in renamed and file.mtime_ns / 1e9 <= latest
        ]

    def _look_at_renames(self, states: Mapping[str, FileState]) -> Set[str]:
        if self._renames is None:
            return frozenset()
        renamed = self._renames.look()
        self._renames.watch([*self._tree.parts, *(p for p in states if states[p].what == "folder")])
        return renamed
