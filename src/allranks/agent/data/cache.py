"""A node's cache of data from elsewhere: made once, shared by jobs, and never half there.

Each thing that was asked for is a folder, named by where it came from and by what its listing said:
names, sizes, tags. Who makes one makes it beside, under a lock, and puts it in its place when it is
whole; who is killed leaves what the next goes on from. A file that has not changed since an older
listing is linked from there. What is in use is held by a lock, and what has not been for the
longest goes first when room is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from allranks import file_locks
from allranks.agent.data.file_entry import Item
from allranks.errors import AllranksError, Passing
from allranks.plan.amounts import size_text

MANIFEST, DATA, PACKED = "manifest.json", "data", "packed"
# What a disk keeps free for others: so much of it, but no more than so many bytes.
_SPARE, _MOST_SPARE = 0.05, 10 << 30
_LOOK = 0.2


class Tree(NamedTuple):
    """What was made. ``files``: name, size in bytes, mtime in ns, checksum and tag of each."""

    folder: Path
    files: tuple[tuple[str, int, int, int, str], ...]

    @property
    def data(self) -> Path:
        return self.folder / DATA

    @property
    def size(self) -> int:
        return sum(each[1] for each in self.files)

    def damaged(self) -> list[str]:
        """The files that are not as they were made."""
        found = []
        for name, size, mtime, _, _ in self.files:
            try:
                seen = os.stat(f"{self.folder}/{DATA}/{name}")
            except OSError:
                found.append(name)
                continue
            if (seen.st_size, seen.st_mtime_ns) != (size, mtime):
                found.append(name)
        return found


def place_of(uri: str) -> str:
    """What all trees of one place begin with."""
    return hashlib.sha256(uri.encode()).hexdigest()[:16]


def content_of(items: Sequence[Item], unpacked: bool) -> str:
    """What is the same for what is the same, as far as its store tells."""
    listed = sorted((item.name, item.size, item.tag) for item in items)
    return hashlib.sha256(json.dumps([listed, unpacked]).encode()).hexdigest()[:24]


def read(folder: Path) -> Tree | None:
    """A tree that is there."""
    try:
        told = json.loads((folder / MANIFEST).read_text())
        return Tree(folder, tuple((*each,) for each in told["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def use(folder: Path) -> int | None:
    """Hold it as long as the descriptor is open; None when it is gone, or just going."""
    try:
        file = os.open(folder.with_suffix(".use"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    if not (folder / MANIFEST).exists():
        os.close(file)
        return None
    with contextlib.suppress(OSError):
        os.utime(folder / MANIFEST)
    return file


@contextlib.contextmanager
def alone(goal: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """While nobody else makes it; ``waiting`` is called as long as another does."""
    goal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while (lock := file_locks.take(goal.with_suffix(".lock"))) is None:
        waiting()
        time.sleep(_LOOK)
    try:
        yield
    finally:
        os.close(lock)


def begin(goal: Path, items: Sequence[Item]) -> Path:
    """The folder to make it in, with all that can be had without asking anybody: what a maker that
    was killed had got, and what older trees of the same place hold unchanged."""
    beside = goal.with_suffix(".part")
    if not beside.exists():
        _adopt(beside)
    (beside / DATA).mkdir(parents=True, exist_ok=True, mode=0o755)
    _open_up(beside)
    if (beside / PACKED).exists():
        # Killed while it was unpacked: of that it is begun anew.
        remove(beside / DATA)
        (beside / PACKED).rename(beside / DATA)
    _prune(beside / DATA, {item.name for item in items})
    older: dict[tuple[str, int, str], tuple[Tree, int, int]] = {}
    for tree in _trees(goal.parent, goal.name.partition("-")[0]):
        for name, size, mtime, crc, tag in tree.files:
            older[name, size, tag] = (tree, mtime, crc)
    lines = []
    for item in items:
        known = older.get((item.name, item.size, item.tag))
        path = beside / DATA / item.name
        if known is None or path.exists():
            continue
        tree, mtime, crc = known
        source = tree.data / item.name
        with contextlib.suppress(OSError):
            if (seen := source.stat()).st_size == item.size and seen.st_mtime_ns == mtime:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, path)
                lines.append(json.dumps([item.name, item.tag, item.size, None, crc]) + "\n")
    with (beside / "journal").open("a") as journal:
        journal.writelines(lines)
    return beside


def _adopt(beside: Path) -> None:
    """Go on with what somebody began for an older listing of the same place, and was killed."""
    for other in beside.parent.glob(f"{beside.name.partition('-')[0]}-*.part"):
        lock = file_locks.take(other.with_suffix(".lock"))
        if lock is None:
            continue
        try:
            other.rename(beside)
            return
        except OSError:
            continue
        finally:
            os.close(lock)


def _prune(data: Path, names: Set[str]) -> None:
    """Take away what is not asked for any more."""
    for folder, _, files in os.walk(data):
        for each in files:
            path = os.path.join(folder, each)
            if os.path.relpath(path, data) not in names:
                os.unlink(path)


def finish(goal: Path, beside: Path, files: Sequence[tuple[str, int, str]]) -> Tree:
    """Put it in its place. ``files``: name, checksum and tag of each. Raises AllranksError."""
    rows = []
    for name, crc, tag in files:
        seen = os.stat(f"{beside}/{DATA}/{name}")
        rows.append((name, seen.st_size, seen.st_mtime_ns, crc, tag))
    about: dict[str, Any] = {"files": rows, "made_at": time.time()}
    (beside / MANIFEST).write_text(json.dumps(about))
    # What is there is of no use to anybody new: its manifest could not be read.
    if goal.exists() and not let_go(goal):
        raise AllranksError(
            "what is in the cache cannot be read, and another job is using it",
            where=str(goal / MANIFEST),
            hint="wait for its end: then it is made anew",
        )
    beside.rename(goal)
    for folder, _, _ in os.walk(goal / DATA, topdown=False):
        os.chmod(folder, 0o555)
    (goal / "journal").unlink(missing_ok=True)
    return Tree(goal, tuple(rows))


def mend(tree: Tree, beside: Path, names: Sequence[str], crcs: Mapping[str, int]) -> Tree:
    """Put files in the place of damaged ones, each at once: jobs may be reading the others."""
    for name in names:
        path = tree.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(path.parent, 0o755)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        os.replace(beside / DATA / name, path)
        os.chmod(path.parent, 0o555)
    rows = []
    for name, size, mtime, crc, tag in tree.files:
        if name in crcs:
            mtime, crc = os.stat(f"{tree.folder}/{DATA}/{name}").st_mtime_ns, crcs[name]
        rows.append((name, size, mtime, crc, tag))
    mended = tree.folder / f"{MANIFEST}.new"
    mended.write_text(json.dumps({"files": rows, "made_at": time.time()}))
    mended.replace(tree.folder / MANIFEST)
    remove(beside)
    return Tree(tree.folder, tuple(rows))


# ---------------------------------------------------------------- room


def make_room(cache: Path, needed: int, limit: int | None, keep: str) -> int:
    """Let go of what nobody uses, the longest unused first, until ``needed`` bytes have room; how
    many there are then. ``keep`` begins the names of trees that are about to be linked from.

    Raises AllranksError where there is not enough all the same.
    """
    free, held = _room(cache, limit), ""
    if free < needed:
        _forget_unfinished(cache, keep)
        free = _room(cache, limit)
    for tree in sorted(_trees(cache), key=lambda each: _last_use(each.folder)):
        if free >= needed:
            break
        if tree.folder.name.startswith(keep) or not let_go(tree.folder):
            held = "; what else is there is in use"
            continue
        free = _room(cache, limit)
    if free < needed:
        hint = "give the compute another folder, or more room: --cache PATH, --cache-limit SIZE"
        raise Passing(
            f"{size_text(needed)} have no room in the node's cache, which has "
            f"{size_text(max(0, free))} left{held}",
            where=str(cache),
            hint=hint,
        )
    return free


def _forget_unfinished(cache: Path, keep: str) -> None:
    """What those that were killed have left, but of the place that is made now."""
    for each in cache.glob("*.gone"):
        remove(each)
    for each in cache.glob("*.part"):
        if not each.name.startswith(keep) and not file_locks.is_held(each.with_suffix(".lock")):
            remove(each)


def let_go(folder: Path) -> bool:
    """Remove a tree, unless somebody uses it."""
    with contextlib.suppress(OSError):
        file = os.open(folder.with_suffix(".use"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = folder.with_suffix(".gone")
            remove(gone)  # of one who was killed here
            folder.rename(gone)
            remove(gone)
            return True
        finally:
            os.close(file)
    return False


def remove(folder: Path) -> None:
    """A folder with all that is in it, read-only as its folders may be."""
    _open_up(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _open_up(folder: Path) -> None:
    for each, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(each, 0o755)


def _room(cache: Path, limit: int | None) -> int:
    disk = shutil.disk_usage(cache)
    free = disk.free - min(int(disk.total * _SPARE), _MOST_SPARE)
    if limit is None:
        return free
    return min(free, limit - sum(tree.size for tree in _trees(cache)))


def _trees(cache: Path, place: str = "") -> list[Tree]:
    found = (read(each.parent) for each in cache.glob(f"{place}*/{MANIFEST}"))
    return [each for each in found if each is not None and not each.folder.suffix]


def _last_use(folder: Path) -> float:
    try:
        return (folder / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0
