"""List the files of the user's code, including uncommitted changes.

What git ignores is left out, and what `.amlignore` excludes by git's patterns; so are `.git`,
caches, virtual environments and the job's own `outputs/` and `logs/`, unless they hold code.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from allranks.snapshot.git_files import files_of_git, rules_without_git
from allranks.snapshot.ignore import NEVER, excluded_by_user

_JOB_FOLDERS = ("logs", "outputs")


class Mark(NamedTuple):
    """The files by which a folder to leave out is recognised."""

    files: tuple[str, ...]
    why: str


_MARKS = (
    Mark(("pyvenv.cfg",), "a virtual environment cannot be moved"),
    Mark(("token", "server.lock"), "an allranks home"),
)
# Names of files, and whether git tracks them.
Names = Mapping[str, bool]


class File(NamedTuple):
    """A file or link: its path on disk, its name in the code, and its metadata. One that is made
    for the code has its ``content`` and no path."""

    path: str
    name: str
    status: os.stat_result
    content: bytes | None = None


def generated(name: str, content: bytes) -> File:
    """A file that is made for the code."""
    status = os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, len(content), 0, 0, 0))
    return File("", name, status, content)


def status_now(file: File) -> os.stat_result:
    """The metadata of a file as it is now. Raises OSError."""
    return file.status if file.content is not None else os.lstat(file.path)


def walk(code: Path, notes: list[str], is_commit: bool = False, of_job: bool = True) -> list[File]:
    """The files of a folder, or the single file, sorted by name. Excluded files that a user may
    miss are added to ``notes``. ``is_commit``: the folder is a checkout, and git tracks all of it.
    ``of_job``: a job runs in it, and has some folders of its own. Raises OSError."""
    if code.is_file():
        return [File(str(code), code.name, os.lstat(code))]
    names = dict.fromkeys(_walk(code, lambda path: False), True) if is_commit else _names(code)
    is_excluded = excluded_by_user(code)
    chosen = [name for name in _without_marked(names, notes) if not is_excluded(name)]
    if of_job:
        chosen = _without_job_folders(code, names, chosen, notes)
    files, links = list[File](), list[str]()
    for name in sorted(chosen):
        path = f"{code}/{name}"
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # git tracks it, and it was deleted
        kind = status.st_mode
        if stat.S_ISREG(kind) or (stat.S_ISLNK(kind) and stays_inside(name, os.readlink(path))):
            files.append(File(path, name, status))
        elif stat.S_ISLNK(kind):
            links.append(name)
        elif not stat.S_ISDIR(kind):
            notes.append(f"left out of the code: {name} (neither a file nor a folder)")
    if links:
        notes.append(_links_note(links))
    return files


def stays_inside(name: str, target: str) -> bool:
    """Whether a link leads to something in the same folder tree, by its text, wherever that is."""
    lands = os.path.normpath(os.path.join(os.path.dirname(name), target))
    return not os.path.isabs(target) and lands.split("/")[0] != ".."


def _names(folder: Path) -> dict[str, bool]:
    """The files of a folder that are not ignored, and whether git tracks them."""
    names: dict[str, bool] = {}
    for name, is_tracked, is_repository in files_of_git(folder):
        if is_repository:
            inside = _names(folder / name) if (folder / name / ".git").exists() else {}
            names |= {f"{name}/{each}": tracked for each, tracked in inside.items()}
        else:
            names[name] = is_tracked
    # A folder that is ignored itself has no files for git, and holds code nevertheless.
    return names or dict.fromkeys(_walk(folder, rules_without_git(folder)), False)


def _walk(root: Path, ignored: Callable[[str], bool]) -> Iterator[str]:
    """The names of files that are not ignored. Of a folder to leave out only the mark."""
    folders = [""]
    while folders:
        parent = folders.pop()
        with os.scandir(f"{root}/{parent}") as iterator:
            entries = {entry.name: entry for entry in iterator if entry.name not in NEVER}
        if parent and (mark := _mark(entries)):
            yield from (parent + file for file in mark.files)
            continue
        for name, entry in entries.items():
            is_folder = entry.is_dir(follow_symlinks=False)
            path = f"{parent}{name}/" if is_folder else parent + name
            if ignored(path):
                continue
            if is_folder:
                folders.append(path)
            else:
                yield path


def _mark(names: Container[str], folder: str = "") -> Mark | None:
    """What kind of folder to leave out ``folder`` is, if it is one."""
    marks = (mark for mark in _MARKS if all(folder + file in names for file in mark.files))
    return next(marks, None)


def _without_marked(names: Collection[str], notes: list[str]) -> list[str]:
    """The names that are not in folders to leave out."""
    is_left_out: dict[str, bool] = {"": False}
    firsts = {mark.files[0] for mark in _MARKS}
    marked = {
        folder: mark.why
        for folder, _, file in (name.rpartition("/") for name in names)
        if folder and file in firsts and (mark := _mark(names, f"{folder}/"))
    }

    def is_in_one(path: str) -> bool:
        if path not in is_left_out:
            parent, _, last = path.rpartition("/")
            is_left_out[path] = is_in_one(parent) or last in NEVER or path in marked
        return is_left_out[path]

    kept = [name for name in names if not is_in_one(name)]
    for folder, why in marked.items():
        if not is_in_one(os.path.dirname(folder)):
            notes.append(f"left out of the code: {folder}/ ({why})")
    return kept


def _without_job_folders(
    code: Path, names: Names, chosen: Sequence[str], notes: list[str]
) -> list[str]:
    """The names that are not in `logs/` or `outputs/`, which a job has of its own. What git tracks
    in them is code, and so is a package of that name."""
    for top in _JOB_FOLDERS:
        is_package = f"{top}/__init__.py" in names
        rest = [
            name
            for name in chosen
            if name.partition("/")[0] != top or (name != top and (is_package or names[name]))
        ]
        is_kept = any(name.startswith(f"{top}/") for name in rest)
        if (code / top).is_dir():
            if not is_kept and os.listdir(code / top):
                notes.append(f"left out of the code: {top}/ (the job gets its own, empty one)")
        elif top in chosen:
            notes.append(f"left out of the code: {top} (the job creates a folder of that name)")
        chosen = rest
    return [*chosen]


def _links_note(links: Sequence[str]) -> str:
    some = ", ".join(links[:3]) + (f" and {len(links) - 3} more" if len(links) > 3 else "")
    what = "a link" if len(links) == 1 else "links"
    return (
        f"left out of the code: {some} ({what} out of the folder; to send what is there, replace "
        "it by a copy: cp -rL; a link to a file of the folder has to be relative: ln -sr)"
    )
