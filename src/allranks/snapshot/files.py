"""Which files are the user's code: as they are now, uncommitted changes included.

`.amlignore` says what to leave out, else `.gitignore`, both with git's own patterns. The job's own
`outputs/` and `logs/`, `.git`, caches and virtual environments are never taken along.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

NEVER = frozenset({".git", "__pycache__", ".ipynb_checkpoints"})
_THE_JOBS_OWN = frozenset({"outputs", "logs"})


class File(NamedTuple):
    """A file or a link: where it lies, what it is called in the code, and how it looks."""

    path: str
    name: str
    status: os.stat_result


def walk(code: Path, notes: list[str]) -> list[File]:
    """The files of a folder, or the one file, in the order of their names; ``notes`` hears what
    was left out that a person might miss. Raises UsageError and OSError."""
    if code.is_file():
        return [File(str(code), code.name, os.lstat(code))]
    return sorted(_walk(code, notes), key=lambda file: file.name)


def _walk(root: Path, notes: list[str]) -> Iterator[File]:
    ignored = ignore_rules(root)
    folders = [(str(root), "")]
    while folders:
        folder, here = folders.pop()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            name = here + entry.name
            if entry.is_dir():
                if _leave_out(entry.name, here, entry.path, notes) or ignored(f"{name}/"):
                    continue
                if not entry.is_symlink():
                    folders.append((entry.path, f"{name}/"))
                    continue
            elif not here and entry.name in _THE_JOBS_OWN:
                notes.append(f"left out of the code: {name} (the job has a folder of that name)")
                continue
            elif ignored(name):
                continue
            status = entry.stat(follow_symlinks=False)
            if _can_be_taken(entry.path, name, status.st_mode, notes):
                yield File(entry.path, name, status)


def _leave_out(name: str, here: str, path: str, notes: list[str]) -> bool:
    if name in NEVER:
        return True
    if not here and name in _THE_JOBS_OWN:
        if os.listdir(path):
            notes.append(f"left out of the code: {name}/ (the job gets an empty one of its own)")
        return True
    if all(os.path.exists(os.path.join(path, each)) for each in ("token", "server.lock")):
        notes.append(f"left out of the code: {here}{name}/ (a home of allranks)")
        return True
    if os.path.exists(os.path.join(path, "pyvenv.cfg")):
        notes.append(f"left out of the code: {here}{name}/ (a virtual environment cannot be moved)")
        return True
    return False


def _can_be_taken(path: str, name: str, kind: int, notes: list[str]) -> bool:
    if stat.S_ISLNK(kind):
        goal = os.readlink(path)
        # As it reads, not where it ends: one that leaves and comes back is refused when unpacked.
        landing = os.path.normpath(os.path.join(os.path.dirname(name), goal))
        if not os.path.isabs(goal) and landing.split("/")[0] != "..":
            return True
        notes.append(f"left out of the code: {name} (a link that leads out of the folder)")
        return False
    if not stat.S_ISREG(kind):
        notes.append(f"left out of the code: {name} (neither a file nor a folder)")
        return False
    return True


def ignore_rules(root: Path) -> Callable[[str], bool]:
    """A function that says whether ``.amlignore``, else ``.gitignore``, leaves a path out."""
    for name in (".amlignore", ".gitignore"):
        file = root / name
        if file.is_file():
            import pathspec  # lazy: 90 ms, only where there is something to ignore

            lines = file.read_text(errors="surrogateescape").splitlines()
            return pathspec.GitIgnoreSpec.from_lines(lines).match_file
    return lambda path: False
