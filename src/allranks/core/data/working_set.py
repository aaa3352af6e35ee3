"""The working set: what ranks made, changed or removed in their working folder. Pure.

It is the difference of a node's working folder to the code that was unpacked there. The next
attempt finds it again, and so does a restarted job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from allranks.core.amounts import counted, size_text
from allranks.core.packing import unpack
from allranks.core.text import printable

# Folders of the working folder whose files belong to the job's record, where attempts find them.
COLLECTED = ("outputs", "logs")
# The parts of a working set: the files, a file about them, and what was changed in which attempt,
# as the last one began.
FILES, ABOUT, CHANGES = "work", "about/work.json", "about/changes.json"
# In an agent's folder in the home: the node has its folder on a disk of its own.
ELSEWHERE = "elsewhere"
# The folder of a job's record with the sets that the server has, one for each node.
RECORDED = "working-folder"
# Bytes of a node's working set that the server holds.
LIMIT = 10 * 10**9
# Folders that their programs make again.
_REMADE = "__pycache__"
# How many files a note names.
_NAMED = 3


class About(NamedTuple):
    """What the files do not say: paths of the code that were ``removed``, folders with a slash at
    the end; the path of the working ``folder`` on its node; the size, if it is ``over`` the bound,
    so that no files are held; other ``trouble`` that makes it a part."""

    removed: tuple[str, ...] = ()
    folder: str = ""
    over: int = 0
    trouble: str = ""

    def dump(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @staticmethod
    def load(data: bytes) -> About:
        return unpack(About, json.loads(data))


class Held(NamedTuple):
    """What the server has of a node's working set, as its agent learns it. ``form``: a `folder` of
    the record, a `state` to fetch, or nothing. ``unfinished``: files that were being written when
    the server last heard of them. ``sends``: the job may restart on another node, so its agents
    send the set while it runs. ``limit``: the bound in bytes."""

    form: str = ""
    unfinished: tuple[str, ...] = ()
    sends: bool = False
    limit: int = LIMIT


class SetFile(NamedTuple):
    """A file of a working set, by its path in the working folder."""

    path: str
    size: int
    modified: float


def is_carried(path: str) -> bool:
    """Whether a path of the working folder belongs to the working set."""
    names = path.split("/")
    return names[0] not in COLLECTED and _REMADE not in names


def folders_above(paths: Iterable[str]) -> set[str]:
    """All folders that these paths lie in."""
    above = set[str]()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in above:
            above.add(folder)
            folder = folder.rpartition("/")[0]
    return above


def sentence(
    attempt: int,
    files: Iterable[SetFile],
    removed: int,
    others: Mapping[int, Collection[str]] = {},
    apart: Collection[str] = (),
) -> str:
    """What an attempt finds of the earlier ones, for a person. ``others``: the paths by the node
    whose ranks alone changed them; ``apart``: paths that also another node changed."""
    every = [*files]
    parts = [counted(len(every), "file")] if every else []
    if removed:
        parts.append(f"{counted(removed, 'removal')}")
    start = f"attempt {attempt} continues with "
    newest = max(every, key=lambda file: file.modified, default=None)
    shown = f", newest {printable(newest.path)}" if newest else ""
    own = f"{' and '.join(parts)} of the working folder{shown}" if parts else ""
    come = [
        f"{counted(len(paths), 'change')} of {_of(node)}: {_names(sorted(paths))}"
        for node, paths in sorted(others.items())
    ]
    kept = [f"changed by several nodes, so each keeps its own: {_names([*apart])}"] if apart else []
    return start + (
        "; ".join([*([own] if own else []), *come, *kept]) or "no files of earlier ones"
    )


def _of(node: int) -> str:
    return f"node {node}" if node >= 0 else "the nodes on the disk of the home"


def unfinished_sentence(attempt: int, paths: Iterable[str], held: Iterable[str]) -> str:
    """What became of files that were being written when their node was lost; '' if none was."""
    complete = set(held)
    every = sorted(paths)
    older = [path for path in every if path in complete]
    absent = [path for path in every if path not in complete]
    parts = []
    if older:
        parts.append(f"their last complete version is used: {_names(older)}")
    if absent:
        parts.append(f"no complete version exists, so they are left out: {_names(absent)}")
    if not parts:
        return ""
    start = f"attempt {attempt}: files were being written when the node was lost"
    return f"{start}; {'; '.join(parts)}"


def too_long_sentence(paths: Sequence[str]) -> str:
    """What of the working folder does not come along."""
    shown = _names([f"{path[:100]}…" for path in paths])
    return f"left out of the working folder, because the path is too long for Linux: {shown}"


def absent_sentence(nodes: Sequence[int], come: Sequence[str], left: Sequence[str]) -> str:
    """What becomes of the files of nodes that the job had before and has not now."""
    which = ", ".join(map(str, nodes))
    got = f"node 0 gets what only they changed: {_names(sorted(come))}" if come else ""
    lost = f"left out, because other nodes have their own: {_names([*left])}" if left else ""
    text = "; ".join(part for part in (got, lost) if part) or "they changed nothing"
    return f"this job has no node {which}: {text}"


def in_the_way_sentence(paths: Sequence[str]) -> str:
    """Which changes of other nodes a node does not get."""
    return f"not brought from other nodes, because something is in the way: {_names([*paths])}"


def away_sentence(paths: Sequence[str]) -> str:
    """Which links of the working folder do not come along."""
    return f"left out of the working folder, because the links lead out of it: {_names([*paths])}"


def too_large(size: int, limit: int) -> str:
    """That the server does not hold a working set, for a person."""
    most = f"the bound of {size_text(limit)}"
    return f"its working folder has {size_text(size)} of new files, more than {most}"


class Merged(NamedTuple):
    """A working set for other code: the paths that are ``left_out``, the ``removed`` paths that
    stay removed, and the ``notes`` for the submitter."""

    left_out: frozenset[str] = frozenset()
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def merged(
    files: Iterable[str],
    removed: Iterable[str],
    before: Mapping[str, str],
    after: Mapping[str, str],
    folders: Collection[str] = (),
) -> Merged:
    """The set for new code: ``before`` and ``after`` have a text for the content of each file of
    the code. Where both the ranks and the new code changed a file, the new code wins, also if one
    made a folder of it. Of ``files``, ``folders`` are folders."""
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    new = changed.intersection(after)
    above = folders_above(new).difference(folders)
    left_out = {
        path
        for path in files
        if path in changed or path in above or not new.isdisjoint(folders_above([path]))
    }
    stays = tuple(path for path in removed if path not in changed)
    again = changed.intersection(removed)
    both = sorted(left_out | again)
    notes = (f"changed by the job and by the new code, which is used: {_names(both)}",)
    return Merged(frozenset(left_out), stays, notes if both else ())


def _names(paths: list[str]) -> str:
    named = ", ".join(printable(path) for path in paths[:_NAMED])
    return f"{named} and {len(paths) - _NAMED} more" if len(paths) > _NAMED else named


# Names of checkpoints, in which frameworks agree.
_CHECKPOINT_ENDS = (
    ".pt",
    ".pth",
    ".ckpt",
    ".bin",
    ".safetensors",
    ".distcp",
    ".h5",
    ".hdf5",
    ".keras",
    ".npz",
    ".npy",
    ".pkl",
    ".pickle",
    ".joblib",
    ".index",
    ".msgpack",
    ".orbax",
)
_CHECKPOINT_WORDS = ("checkpoint", "ckpt", "snapshot", "state", "model", "weights", "resume")


def may_be_checkpoint(path: str) -> bool:
    """Whether a file is named as checkpoints are."""
    lower = path.lower()
    return lower.endswith(_CHECKPOINT_ENDS) or any(word in lower for word in _CHECKPOINT_WORDS)
