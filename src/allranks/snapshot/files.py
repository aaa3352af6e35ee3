"""List the files of the user's code, including uncommitted changes.

`.amlignore`, or else `.gitignore`, excludes files by git's patterns. The job's own `outputs/` and
`logs/`, `.git`, caches and virtual environments are always excluded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

NEVER = frozenset({".git", "__pycache__", ".ipynb_checkpoints"})
_JOB_FOLDERS = frozenset({"outputs", "logs"})


class File(NamedTuple):
    """A file or link: its path on disk, its name in the code, and its metadata."""

    path: str
    name: str
    status: os.stat_result


def walk(code: Path, notes: list[str]) -> list[File]:
    """The files of a folder, or the single file, sorted by name. Excluded files that a user may
    miss are added to ``notes``. Raises UsageError and OSError."""
    if code.is_file():
        return [File(str(code), code.name, os.lstat(code))]
    return sorted(_walk(code, notes), key=lambda file: file.name)


def _walk(root: Path, notes: list[str]) -> Iterator[File]:
    ignored = ignore_rules(root)
    folders = [(str(root), "")]
    while folders:
        folder, parent = folders.pop()
        with os.scandir(folder) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
        for entry in entries:
            name = parent + entry.name
            if entry.is_dir():
                if _is_excluded_folder(entry.name, parent, entry.path, notes) or ignored(
                    f"{name}/"
                ):
                    continue
                if not entry.is_symlink():
                    folders.append((entry.path, f"{name}/"))
                    continue
            elif not parent and entry.name in _JOB_FOLDERS:
                notes.append(
                    f"left out of the code: {name} (the job creates a folder of that name)"
                )
                continue
            elif ignored(name):
                continue
            status = entry.stat(follow_symlinks=False)
            if _is_supported(entry.path, name, status.st_mode, notes):
                yield File(entry.path, name, status)


def _is_excluded_folder(name: str, parent: str, path: str, notes: list[str]) -> bool:
    if name in NEVER:
        return True
    if not parent and name in _JOB_FOLDERS:
        if os.listdir(path):
            notes.append(f"left out of the code: {name}/ (the job gets its own, empty one)")
        return True
    if all(os.path.exists(os.path.join(path, each)) for each in ("token", "server.lock")):
        notes.append(f"left out of the code: {parent}{name}/ (an allranks home)")
        return True
    if os.path.exists(os.path.join(path, "pyvenv.cfg")):
        notes.append(
            f"left out of the code: {parent}{name}/ (a virtual environment cannot be moved)"
        )
        return True
    return False


def _is_supported(path: str, name: str, kind: int, notes: list[str]) -> bool:
    if stat.S_ISLNK(kind):
        goal = os.readlink(path)
        # Check the text of the link, as unpacking does, not where it ends.
        target = os.path.normpath(os.path.join(os.path.dirname(name), goal))
        if not os.path.isabs(goal) and target.split("/")[0] != "..":
            return True
        notes.append(f"left out of the code: {name} (a link out of the folder)")
        return False
    if not stat.S_ISREG(kind):
        notes.append(f"left out of the code: {name} (neither a file nor a folder)")
        return False
    return True


def ignore_rules(root: Path) -> Callable[[str], bool]:
    """A function that tells whether ``.amlignore``, or else ``.gitignore``, excludes a path."""
    for name in (".amlignore", ".gitignore"):
        file = root / name
        if file.is_file():
            import pathspec  # lazy: 90 ms, only where there is something to ignore

            lines = file.read_text(errors="surrogateescape").splitlines()
            return pathspec.GitIgnoreSpec.from_lines(lines).match_file
    return lambda path: False
