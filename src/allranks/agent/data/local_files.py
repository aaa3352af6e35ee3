"""Inputs on the node's own disks, with the same operations as those in stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from allranks.agent.data.file_entry import Changed, FileEntry, Report


def list_files(source: Path) -> tuple[list[FileEntry], bool]:
    """List the files below a folder, or the file at ``source``. The second value tells whether
    ``source`` is a file. Raises OSError."""
    if source.is_file():
        return [_entry(source, source.name)], True
    entries = []
    # Visit each real folder once: links may form a cycle.
    visited = {os.path.realpath(source)}
    for folder, folders, names in os.walk(source, followlinks=True, onerror=_raise):
        real = {name: os.path.realpath(os.path.join(folder, name)) for name in folders}
        folders[:] = [name for name in folders if real[name] not in visited]
        visited |= {real[name] for name in folders}
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                entries.append(_entry(path, str(path.relative_to(source))))
    return entries, False


def copy_files(entries: Sequence[FileEntry], goal: Path, report: Report) -> dict[str, int]:
    """Copy files to ``goal``. Returns a checksum of 0 for each name. Raises Changed and OSError."""
    for item in entries:
        path = goal / item.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy2(item.key, path)
        if _entry(Path(item.key), item.name) != item:
            raise Changed(item.name)
        os.chmod(path, 0o444)
        report(item.size, True)
    return dict.fromkeys((item.name for item in entries), 0)


def read_range(item: FileEntry, start: int, end: int) -> memoryview:
    """Read the bytes from ``start`` to ``end``. Raises Changed and OSError."""
    try:
        with open(item.key, "rb") as file:
            data = memoryview(os.pread(file.fileno(), end - start, start))
        if _entry(Path(item.key), item.name) != item or len(data) != end - start:
            raise Changed(item.name)
    except FileNotFoundError:
        raise Changed(item.name) from None
    return data


def _raise(error: OSError) -> None:
    raise error


def _entry(path: Path, name: str) -> FileEntry:
    stat = path.stat()
    tag = f"{stat.st_mtime_ns}.{stat.st_ino}"
    return FileEntry(name, str(path), stat.st_size, tag, stat.st_mtime)
