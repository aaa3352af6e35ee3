"""State folders, by their manifests: what to send, fetch and remove.

Pure: agents and server decide by the same functions. A state is a folder that the nodes of a job
and the server each have a copy of; what all agreed upon last is told from what changed since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from enum import StrEnum
from typing import Any, Literal, NamedTuple

# The part of all nodes; each node has one of its own beside it, see `own`.
SHARED = "shared"

What = Literal["file", "folder", "link"]


class Entry(NamedTuple):
    """A thing in a state. Of a file its content's ``sha256`` and ``size``, its time and mode; of a
    link its ``target``. ``seq`` counts what has come into that state: a later one is larger."""

    what: What
    sha256: str = ""
    size: int = 0
    mtime_ns: int = 0
    mode: int = 0
    target: str = ""
    seq: int = 0

    def is_as(self, other: Entry | None) -> bool:
        """Whether both say the same, whenever they came."""
        if other is None:
            return False
        return self[:3] == other[:3] and self[4:6] == other[4:6]


Entries = Mapping[str, Entry]


class Here(StrEnum):
    """How a thing lies on the node, against what was agreed upon last."""

    ABSENT = "absent"
    SAME = "same"
    OTHER = "other"


class Todo(StrEnum):
    NOTHING = "nothing"
    SEND = "send"
    SEND_GONE = "send gone"
    FETCH = "fetch"
    REMOVE = "remove"
    FORGET = "forget"


def own(node: int | str) -> str:
    """The part of a state that is the node's own."""
    return f"node-{node}"


def todo(
    head: Entry | None, base: Entry | None, here: Here, mtime_ns: int = 0, what: What = "file"
) -> Todo:
    """What a node does about one path: ``head`` is the server's, ``base`` what both had last;
    ``what`` lies there has changed at ``mtime_ns``.

    Of two who changed it the newer holds; a folder counts as older than a file. What was written
    holds over what was removed: nothing is lost by being looked at too late.
    """
    moved = (head.seq if head else 0) != (base.seq if base else 0)
    if here is Here.SAME:
        assert base is not None
        if not moved:
            return Todo.NOTHING
        return Todo.FETCH if head else Todo.REMOVE
    if here is Here.ABSENT:
        if head is None:
            return Todo.FORGET if base else Todo.NOTHING
        return Todo.FETCH if moved else Todo.SEND_GONE
    if head is None or not moved:
        return Todo.SEND
    alike = head.what == what
    theirs = head.mtime_ns if alike or head.what != "folder" else 0
    ours = mtime_ns if alike or what != "folder" else 0
    return Todo.FETCH if theirs > ours else Todo.SEND


def wants(paths: Iterable[str], node: int) -> list[str]:
    """Those of a state's paths that a node has a copy of."""
    parts = (SHARED, own(node))
    return [path for path in paths if path.partition("/")[0] in parts]


def above(path: str) -> list[str]:
    """The folders that it lies in, below its part."""
    words = path.split("/")
    return ["/".join(words[:n]) for n in range(2, len(words))]


def is_folder(entry: Entry | None) -> bool:
    """Whether others may lie below it; of what nobody has told of they may."""
    return entry is None or entry.what == "folder"


def is_path(path: Any, node: int | None = None) -> bool:
    """Whether it can be a path in a state; of a ``node``: one that it may write."""
    if not isinstance(path, str) or "\0" in path or len(path) > 4000:
        return False
    part, *rest = path.split("/")
    if not rest or any(word in ("", ".", "..") for word in rest):
        return False
    return part in (SHARED, own(node)) if node is not None else True


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at that path leads to nowhere outside its part, whatever else lies there.

    It may lead up only at its start, from a folder that is known to be real: what it then meets are
    files, folders, and links of which the same holds.
    """
    words = [word for word in target.split("/") if word not in ("", ".")]
    ups = 0
    while ups < len(words) and words[ups] == "..":
        ups += 1
    deep = path.count("/") - 1
    plain = target != "" and not target.startswith("/") and "\0" not in target
    return plain and ups <= deep and ".." not in words[ups:] and len(target) <= 4000


def load(data: Mapping[str, Any]) -> dict[str, Entry]:
    """The entries that ``pack`` made into JSON."""
    return {path: Entry(*entry) for path, entry in data.items()}


def pack(entries: Entries) -> dict[str, list[Any]]:
    return {path: list(entry) for path, entry in entries.items()}


# ---------------------------------------------------------------- sets

_NUMBER = re.compile(r"\d+")
# Seconds by which files that are written together may differ.
_TOGETHER = 0.5


def uneven_sets(entries: Entries, sizes: Set[int]) -> list[str]:
    """A sentence for each set of files that were not written together. A set has one for each of
    0 … n - 1, where ``sizes`` has n, as the numbers of ranks and nodes."""
    groups: dict[str, dict[int, float]] = {}
    for path, entry in entries.items():
        for match in _NUMBER.finditer(path) if entry.what == "file" else ():
            name = f"{path[: match.start()]}*{path[match.end() :]}"
            groups.setdefault(name, {})[int(match[0])] = entry.mtime_ns / 1e9
    uneven = []
    for name, times in groups.items():
        newest = max(times.values())
        count = len(times)
        older = [number for number in sorted(times) if newest - times[number] > _TOGETHER]
        if older and count in sizes and {*times} == {*range(count)}:
            numbers = ", ".join(map(str, older[:8])) + (" …" if len(older) > 8 else "")
            uneven.append(
                f"of the {count} files {name}, number {numbers} is up to "
                f"{newest - min(times.values()):.1f} s older than the newest; if each rank writes "
                "one of them at each step, those are of an earlier step"
            )
    return uneven
