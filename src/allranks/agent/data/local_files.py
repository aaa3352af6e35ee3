"""Inputs on the node's own disks, with the same operations as those in stores."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from allranks import folder_trees
from allranks.agent.data.file_entry import Changed, FileEntry, Report


def list_files(
    source: Path, enters: Callable[[str], bool] = lambda real: True
) -> tuple[list[FileEntry], bool]:
    """List the files below a folder, or the file at ``source``. The second value tells whether
    ``source`` is a file. ``enters``: whether a folder is entered, by its real path. Raises
    OSError."""
    if source.is_file():
        return [_entry(str(source), source.name, source.stat())], True
    entries = []
    # Visit each real folder once: links may form a cycle.
    visited = {os.path.realpath(source)}
    for folder, folders, names in folder_trees.walk(source, followlinks=True, onerror=_raise):
        real = {name: os.path.realpath(os.path.join(folder, name)) for name in folders}
        folders[:] = [name for name in folders if real[name] not in visited and enters(real[name])]
        visited |= {real[name] for name in folders}
        # Without pathlib, which takes three times as long: there may be 100,000 small files.
        below = os.path.relpath(folder, source)
        prefix = "" if below == "." else f"{below}/"
        for name in names:
            path = os.path.join(folder, name)
            status = _status(path)
            if status is not None and stat.S_ISREG(status.st_mode):
                entries.append(_entry(path, prefix + name, status))
    return entries, False


def copy_files(entries: Sequence[FileEntry], folder: Path, report: Report) -> dict[str, int]:
    """Copy files to ``folder``. Returns a checksum of 0 for each name. Raises Changed, OSError."""
    for item in entries:
        path = folder / item.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy2(item.key, path)
        if _entry(item.key, item.name, os.stat(item.key)) != item:
            raise Changed(item.name)
        os.chmod(path, 0o444)
        report(item.size, True)
    return dict.fromkeys((item.name for item in entries), 0)


def read_range(item: FileEntry, start: int, end: int) -> memoryview:
    """Read the bytes from ``start`` to ``end``. Raises Changed and OSError."""
    try:
        with open(item.key, "rb") as file:
            data = memoryview(os.pread(file.fileno(), end - start, start))
        if _entry(item.key, item.name, os.stat(item.key)) != item or len(data) != end - start:
            raise Changed(item.name)
    except FileNotFoundError:
        raise Changed(item.name) from None
    return data


def _raise(error: OSError) -> None:
    raise error


def _status(path: str) -> os.stat_result | None:
    """None for a link that leads nowhere."""
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _entry(path: str, name: str, status: os.stat_result) -> FileEntry:
    tag = f"{status.st_mtime_ns}.{status.st_ino}"
    return FileEntry(name, path, status.st_size, tag, status.st_mtime)
