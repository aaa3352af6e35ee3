"""Whether stored files are still what was stored: their folders are read-only, which does not stop
a job of root. Contents are read only where times differ, as after a restore."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# Python writes there when it imports what lies beside, and checks what it reads.
_CACHES = "__pycache__"


class Stored(NamedTuple):
    """A file with the hash of its content, a link with its ``target``, or a folder."""

    size: int = 0
    sha256: str = ""
    target: str = ""


class Change(NamedTuple):
    """A path that differs from what was stored; ``top`` is the folder that it is in."""

    top: Path
    path: str

    def __str__(self) -> str:
        file = self.top / self.path
        status = os.lstat(next(item for item in (file, *file.parents) if os.path.lexists(item)))
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(status.st_mtime))
        return f"{_text(self.path or self.top.name)!r}, on {at} UTC"

    @property
    def where(self) -> str:
        return _text(str(self.top / self.path))


def _text(path: str) -> str:
    """Responses are UTF-8, which names of files need not be."""
    return os.fsencode(path).decode(errors="replace")


def first_change(
    top: Path, stored: Mapping[str, Stored], times: Mapping[str, int]
) -> Change | None:
    """The first path at which there is something else than was stored. ``times`` are those of the
    unchanged files in ns; the contents of others are read. Raises OSError."""
    remaining = {path: item for path, item in stored.items() if not _is_cached(path)}
    for path, entry in entries_below(top):
        if _is_cached(path):
            continue
        item = remaining.pop(path, None)
        if item is None or not _is_same(entry, item, times.get(path)):
            return Change(top, path)
    return next((Change(top, path) for path in remaining), None)


def _is_cached(path: str) -> bool:
    return _CACHES in path.split("/")


def entries_below(top: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that lies below a folder, with its path there; of a single file itself, with an empty
    path. Raises OSError."""
    with os.scandir(top.parent) as scan:
        own = next((entry for entry in scan if entry.name == top.name), None)
    if own is None:
        return
    if not own.is_dir(follow_symlinks=False):
        yield "", own
        return
    pending = [""]
    while pending:
        start = pending.pop()
        with os.scandir(f"{top}/{start}") as scan:
            for entry in scan:
                path = f"{start}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/")
                yield path, entry


def same_kind(entry: os.DirEntry[str], item: Stored) -> bool:
    if entry.is_symlink():
        return bool(item.target)
    if entry.is_dir():
        return not (item.sha256 or item.target)
    return bool(item.sha256) and entry.is_file()


def _is_same(entry: os.DirEntry[str], item: Stored, mtime: int | None) -> bool:
    if not same_kind(entry, item):
        return False
    if item.target:
        return os.readlink(entry.path) == item.target
    if not item.sha256:
        return True
    status = entry.stat(follow_symlinks=False)
    if status.st_size != item.size:
        return False
    return status.st_mtime_ns == mtime or file_hash(entry.path) == item.sha256


def file_hash(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
