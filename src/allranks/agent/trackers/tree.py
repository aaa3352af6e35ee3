"""Find new files of trackers in folders, at little cost."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from allranks.snapshot.ignore import NEVER

# A folder with one of these is a virtual environment, or a cache.
_MARKS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
# Folders that are watched.
_MOST = 50_000
# Seconds after a change in which another one may get the same time, on any file system.
_COARSE = 2.0


def is_tracked(name: str, others: Iterable[str]) -> bool:
    """Whether a tracker writes a file of that name. Trackio has a lock beside each database."""
    if name.endswith(".db"):
        return f"{name[:-3]}.lock" in others
    return "tfevents" in name or (name.endswith(".wandb") and name.startswith("run-"))


class Tree:
    """Files of trackers below ``roots``, which are no links, that were written after ``began``, in
    seconds since the epoch. Only folders that have changed are listed again."""

    def __init__(self, roots: Iterable[Path], began: float) -> None:
        self._began = began
        self._roots = [*roots]
        # When each folder was changed last; 0 if it is to be listed again.
        self._folders = dict.fromkeys(map(str, self._roots), 0)
        self._found: set[str] = set()

    def new_files(self, again: bool = False) -> list[Path]:
        """Those that are new since the last call, the earliest first. ``again``: list all."""
        files = list[Path]()
        queue = list(self._folders)
        for folder in queue:  # it grows meanwhile
            try:
                changed = os.stat(folder).st_mtime_ns
            except OSError:
                continue
            if changed == self._folders[folder] and not again:
                continue
            is_settled = time.time() - changed / 1e9 > _COARSE
            self._folders[folder] = changed if is_settled else 0
            queue += self._list(folder, files)
        return sorted(files, key=_age)

    def root_of(self, path: Path) -> Path:
        """The folder of the job that a file is in."""
        return next(root for root in self._roots if path.is_relative_to(root))

    def _list(self, folder: str, files: list[Path]) -> Iterator[str]:
        """Add the folder's files that are new to ``files``; yield its folders that are new."""
        try:
            with os.scandir(folder) as scan:
                entries = {entry.name: entry for entry in scan}
        except OSError:
            return
        if _MARKS & entries.keys():
            return
        for name, entry in entries.items():
            if entry.is_dir(follow_symlinks=False):
                is_new = entry.path not in self._folders and name not in NEVER
                if is_new and len(self._folders) < _MOST:
                    self._folders[entry.path] = 0
                    yield entry.path
            elif is_tracked(name, entries) and entry.path not in self._found:
                self._add(entry, files)

    def _add(self, entry: os.DirEntry[str], files: list[Path]) -> None:
        with contextlib.suppress(OSError):  # it was removed
            is_file = entry.is_file(follow_symlinks=False)
            if is_file and entry.stat(follow_symlinks=False).st_mtime >= self._began:
                self._found.add(entry.path)
                files.append(Path(entry.path))


def _age(path: Path) -> tuple[str, Path]:
    """TensorBoard has the time in the names of its files, W&B in those of folders."""
    return (path.name if "tfevents" in path.name else path.parent.name), path
