"""A node's cache of input data, shared by jobs.

Each entry is a folder. Its name combines a hash of the source URI with a hash of the source's
listing (names, sizes, tags). A writer fills ``NAME.part`` under a lock and renames it when it is
complete; after a kill, the next writer resumes from it. Files unchanged since an older listing are
hard-linked from the older entry. Readers hold a shared lock on ``NAME.use``; the least recently
used entries without one are evicted when space is needed.
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
from typing import NamedTuple

from allranks import file_locks, folder_trees
from allranks.agent.data.file_entry import FileEntry
from allranks.core.amounts import size_text
from allranks.errors import AllranksError, Passing

MANIFEST, DATA, PACKED = "manifest.json", "data", "packed"
# Disk space kept free for other programs: a share of the disk, up to a number of bytes, and never
# more than half of what is free: a small input fits on a disk that is nearly full.
_RESERVED_SHARE, _MAX_RESERVED = 0.05, 10 << 30
_LOCK_POLL_SECONDS = 0.2


class Tree(NamedTuple):
    """A cache entry. ``files``: name, size in bytes, mtime in ns, checksum and tag of each."""

    folder: Path
    files: tuple[tuple[str, int, int, int, str], ...]

    @property
    def data(self) -> Path:
        return self.folder / DATA

    @property
    def size(self) -> int:
        return sum(row[1] for row in self.files)

    def damaged(self) -> list[str]:
        """Names of files that are missing or changed since the entry was made."""
        names = []
        for name, size, mtime, _, _ in self.files:
            try:
                stat = os.stat(f"{self.folder}/{DATA}/{name}")
            except OSError:
                names.append(name)
                continue
            if (stat.st_size, stat.st_mtime_ns) != (size, mtime):
                names.append(name)
        return names


def source_id(uri: str) -> str:
    """The prefix that the names of all entries of one source share."""
    return hashlib.sha256(uri.encode()).hexdigest()[:16]


def content_id(items: Sequence[FileEntry], unpacked: bool) -> str:
    """A hash of the listing: equal listings share an entry."""
    listed = sorted((item.name, item.size, item.tag) for item in items)
    return hashlib.sha256(json.dumps([listed, unpacked]).encode()).hexdigest()[:24]


def read(folder: Path) -> Tree | None:
    """The entry at ``folder``, or None if there is no readable manifest."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return Tree(folder, tuple((*row,) for row in manifest["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def acquire(folder: Path) -> int | None:
    """Take a shared lock on an entry and mark it as used. Returns the descriptor that holds the
    lock, or None if the entry does not exist or is being removed."""
    try:
        file = os.open(folder.with_suffix(".acquire"), os.O_RDWR | os.O_CREAT, 0o600)
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
def exclusive(entry: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the writer's lock of an entry; ``waiting`` is called while another process holds it."""
    entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while (lock := file_locks.take(entry.with_suffix(".lock"))) is None:
        waiting()
        time.sleep(_LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(lock)


def prepare(entry: Path, items: Sequence[FileEntry]) -> Path:
    """Return the folder to fill, with all files that need no transfer: those a killed writer had
    fetched, and unchanged ones of older entries of the same source."""
    partial = entry.with_suffix(".part")
    if not partial.exists():
        _adopt_partial(partial)
    (partial / DATA).mkdir(parents=True, exist_ok=True, mode=0o755)
    _make_writable(partial)
    if (partial / PACKED).exists():
        # A writer was killed while unpacking: start over from the archives.
        remove(partial / DATA)
        (partial / PACKED).rename(partial / DATA)
    _remove_others(partial / DATA, {item.name for item in items})
    older: dict[tuple[str, int, str], tuple[Tree, int, int]] = {}
    for tree in _trees(entry.parent, entry.name.partition("-")[0]):
        for name, size, mtime, crc, tag in tree.files:
            older[name, size, tag] = (tree, mtime, crc)
    lines = []
    for item in items:
        match = older.get((item.name, item.size, item.tag))
        path = partial / DATA / item.name
        if match is None or path.exists():
            continue
        tree, mtime, crc = match
        source = tree.data / item.name
        with contextlib.suppress(OSError):
            if (stat := source.stat()).st_size == item.size and stat.st_mtime_ns == mtime:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, path)
                lines.append(json.dumps([item.name, item.tag, item.size, None, crc]) + "\n")
    with (partial / "journal").open("a") as journal:
        journal.writelines(lines)
    return partial


def _adopt_partial(partial: Path) -> None:
    """Take over what a killed writer left for an older listing of the same source."""
    for other in partial.parent.glob(f"{partial.name.partition('-')[0]}-*.part"):
        lock = file_locks.take(other.with_suffix(".lock"))
        if lock is None:
            continue
        try:
            other.rename(partial)
            return
        except OSError:
            continue
        finally:
            os.close(lock)


def _remove_others(data: Path, names: Set[str]) -> None:
    for folder, _, files in folder_trees.walk(data):
        for file in files:
            path = os.path.join(folder, file)
            if os.path.relpath(path, data) not in names:
                os.unlink(path)


def publish(entry: Path, partial: Path, files: Sequence[tuple[str, int, str]]) -> Tree:
    """Rename a complete folder to its final name. ``files``: name, checksum and tag of each.
    Raises AllranksError."""
    rows = []
    for name, crc, tag in files:
        stat = os.stat(f"{partial}/{DATA}/{name}")
        rows.append((name, stat.st_size, stat.st_mtime_ns, crc, tag))
    _write_manifest(partial / MANIFEST, rows)
    # The caller found no readable manifest there, so the old entry can go.
    if entry.exists() and not remove_if_unused(entry):
        raise AllranksError(
            "the cache entry is damaged, and another job is using it",
            where=str(entry / MANIFEST),
            hint="wait until that job has ended; the entry is then fetched again",
        )
    partial.rename(entry)
    for folder, _, _ in folder_trees.walk(entry / DATA, topdown=False):
        os.chmod(folder, 0o555)
    (entry / "journal").unlink(missing_ok=True)
    return Tree(entry, tuple(rows))


def repair(tree: Tree, partial: Path, names: Sequence[str], crcs: Mapping[str, int]) -> Tree:
    """Replace damaged files one by one, atomically: jobs may be reading the others."""
    for name in names:
        path = tree.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(path.parent, 0o755)
        if path.is_dir() and not path.is_symlink():
            folder_trees.remove(path)
        os.replace(partial / DATA / name, path)
        os.chmod(path.parent, 0o555)
    rows = []
    for name, size, mtime, crc, tag in tree.files:
        if name in crcs:
            mtime, crc = os.stat(f"{tree.folder}/{DATA}/{name}").st_mtime_ns, crcs[name]
        rows.append((name, size, mtime, crc, tag))
    _write_manifest(tree.folder / MANIFEST, rows)
    remove(partial)
    return Tree(tree.folder, tuple(rows))


def _write_manifest(path: Path, rows: Sequence[tuple[str, int, int, int, str]]) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"files": rows, "made_at": time.time()}))
    temporary.replace(path)


def _make_writable(folder: Path) -> None:
    for path, _, _ in folder_trees.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(path, 0o755)


# ---------------------------------------------------------------- eviction


def make_room(cache: Path, needed: int, limit: int | None, keep: str) -> int:
    """Remove the least recently used entries until ``needed`` bytes are free. Returns the free
    bytes. Entries whose name starts with ``keep`` stay: files are about to be linked from them.

    Raises Passing if unused entries do not free enough.
    """
    free, note = _free_bytes(cache, limit), ""
    if free < needed:
        _remove_leftovers(cache, keep)
        free = _free_bytes(cache, limit)
    for tree in sorted(_trees(cache), key=lambda tree: _last_used(tree.folder)):
        if free >= needed:
            break
        if tree.folder.name.startswith(keep) or not remove_if_unused(tree.folder):
            note = "; the other entries are in use"
            continue
        free = _free_bytes(cache, limit)
    if free < needed:
        on_disk = shutil.disk_usage(cache).free
        raise Passing(
            f"the node's cache needs {size_text(needed)} and has {size_text(max(0, free))} free; "
            f"its disk has {size_text(on_disk)}, of which a part stays free for other programs"
            f"{note}",
            where=str(cache),
            hint="set another folder or a higher limit for the compute: "
            "--cache PATH, --cache-limit SIZE",
        )
    return free


def _remove_leftovers(cache: Path, keep: str) -> None:
    """Remove what killed processes left, except for the source that is being fetched now."""
    for path in cache.glob("*.gone"):
        remove(path)
    for path in cache.glob("*.part"):
        if not path.name.startswith(keep) and not file_locks.is_held(path.with_suffix(".lock")):
            remove(path)


def remove_if_unused(folder: Path) -> bool:
    """Remove an entry unless a reader holds it. Returns whether it was removed."""
    with contextlib.suppress(OSError):
        file = os.open(folder.with_suffix(".acquire"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = folder.with_suffix(".gone")
            remove(gone)  # left by a process that was killed here
            folder.rename(gone)
            remove(gone)
            return True
        finally:
            os.close(file)
    return False


def remove(folder: Path) -> None:
    """Delete a folder tree, including read-only subfolders."""
    folder_trees.remove(folder, ignore_errors=True)


def _free_bytes(cache: Path, limit: int | None) -> int:
    disk = shutil.disk_usage(cache)
    free = disk.free - min(int(disk.total * _RESERVED_SHARE), _MAX_RESERVED, disk.free // 2)
    if limit is None:
        return free
    return min(free, limit - sum(tree.size for tree in _trees(cache)))


def _trees(cache: Path, prefix: str = "") -> list[Tree]:
    trees = (read(manifest.parent) for manifest in cache.glob(f"{prefix}*/{MANIFEST}"))
    return [tree for tree in trees if tree is not None and not tree.folder.suffix]


def _last_used(folder: Path) -> float:
    try:
        return (folder / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0
