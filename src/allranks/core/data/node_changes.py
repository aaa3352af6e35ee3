"""Which files of the others' working folders a node has in its next attempt. Pure.

Each node has a working folder of its own. Before the ranks of an attempt start, each node says what
its ranks made, changed or removed, and in which attempt they did so last. Then all nodes decide by
the same function: whoever changed a path last keeps what it has, and the others get that. Nodes
that changed it in the same attempt keep their own from then on: it may be a log of each node.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from allranks.core.data.state_manifest import Entry, is_path
from allranks.core.data.working_set import is_carried

GONE = "gone"
# Bytes of a list that are read.
MOST = 256 << 20


class Change(NamedTuple):
    """What ranks did to a path in that ``attempt``, and not since: there is a `file` or a `link`,
    or it is `gone`. ``apart``: several nodes changed it in one attempt, this one and others."""

    attempt: int
    what: str
    size: int = 0
    mtime_ns: int = 0
    target: str = ""
    apart: bool = False

    @staticmethod
    def of(entry: Entry) -> Change:
        """That there is this file or link."""
        mtime_ns = entry.mtime_ns if entry.what == "file" else 0
        return Change(0, entry.what, entry.size, mtime_ns, entry.target)

    def is_as(self, other: Change) -> bool:
        """Whether both left the same, in whatever attempt."""
        return self[1:5] == other[1:5]


class NodeChanges(NamedTuple):
    """A node's changes by path, as an attempt begins. ``over``: the size, if it is over the bound;
    ``folders``: the times of its folders, in ns. Files of an earlier job are of attempt 0 and
    less."""

    launch: int = 0
    attempt: int = 1
    paths: Mapping[str, Change] = {}
    over: int = 0
    folders: Mapping[str, int] = {}

    def dump(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @staticmethod
    def load(data: bytes) -> NodeChanges:
        """Read what an agent wrote. Raises ValueError."""
        try:
            fields: dict[str, Any] = json.loads(data)
            paths = {path: Change(*change) for path, change in fields.pop("paths").items()}
            loaded = NodeChanges(paths=paths, **fields)
            well = all(map(_is_well, paths.items()))
            well = well and all(map(_is_place, loaded.folders))
            well = well and all(type(time) is int for time in loaded.folders.values())
            well = well and all(
                type(n) is int for n in (loaded.launch, loaded.attempt, loaded.over)
            )
        except (AttributeError, KeyError, RecursionError, TypeError) as error:
            raise ValueError(f"not a list of changes: {error}") from None
        if not well:
            raise ValueError("not a list of changes")
        return loaded

    def without(self, paths: Collection[str]) -> NodeChanges:
        """For a node that has other nodes' files at these ``paths``."""
        return self._replace(
            paths={p: change for p, change in self.paths.items() if p not in paths}
        )

    def keeping(self, apart: Collection[str]) -> NodeChanges:
        """For a node that keeps its own files at the paths that stay ``apart``."""
        return self._replace(
            paths={p: change._replace(apart=p in apart) for p, change in self.paths.items()}
        )

    def as_earlier(self, last: int) -> NodeChanges:
        """For a job that goes on after attempt ``last`` of this one."""
        paths = {
            path: change._replace(attempt=change.attempt - last)
            for path, change in self.paths.items()
        }
        return NodeChanges(0, 0, paths)


def _is_well(item: tuple[str, Change]) -> bool:
    path, change = item
    numbers = (change.attempt, change.size, change.mtime_ns)
    plain = all(type(number) is int for number in numbers) and isinstance(change.target, str)
    plain = plain and isinstance(change.apart, bool)
    return _is_place(path) and plain and change.what in ("file", "link", GONE)


def _is_place(path: str) -> bool:
    return is_path(f"work/{path}") and is_carried(path)


def folder_times(changes: Iterable[NodeChanges]) -> dict[str, int]:
    """The time of each folder, the same for all nodes: when any node's ranks changed it last."""
    times = dict[str, int]()
    for path, mtime_ns in (item for change in changes for item in change.folders.items()):
        times[path] = max(mtime_ns, times.get(path, 0))
    return times


def changes_since(
    before: NodeChanges, there: Mapping[str, Change], gone: Iterable[str]
) -> dict[str, Change]:
    """The changes of a node that is known to have had those ``before`` as its last attempt began:
    what is ``there``, of whatever attempt, and what is ``gone``."""
    made, paths = {**there, **{path: Change(0, GONE) for path in gone}}, before.paths
    return {
        path: paths[path]
        if path in paths and paths[path].is_as(change)
        else change._replace(attempt=before.attempt, apart=path in paths and paths[path].apart)
        for path, change in made.items()
    }


class Others(NamedTuple):
    """What a node gets: the node that each path comes ``from_node``; and the paths that stay
    ``apart``, because another node changed them in the same attempt, now or before."""

    from_node: Mapping[str, int]
    apart: tuple[str, ...] = ()


def others(node: int, changes: Mapping[int, NodeChanges]) -> Others:
    """What the ``node`` gets of the others. Of several that changed a path in the same attempt,
    those that did not get the first one's."""
    newest = dict[str, tuple[int, bool, int]]()
    for other in sorted(changes):
        for path, change in changes[other].paths.items():
            rank = (change.attempt, change.what != GONE, -other)
            newest[path] = max(newest.get(path, rank), rank)
    own = changes[node].paths
    from_node = {
        path: -source
        for path, (attempt, _, source) in newest.items()
        if path not in own or (own[path].attempt < attempt and not own[path].apart)
    }
    apart = {
        path
        for other, made in changes.items()
        for path, change in (made.paths.items() if other != node else ())
        if path in own and path not in from_node
        if change.attempt == own[path].attempt or change.apart or own[path].apart
        if not change.what == own[path].what == GONE
    }
    return Others(from_node, tuple(sorted(apart)))
