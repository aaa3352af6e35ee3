"""List the files of the user's code, including uncommitted changes.

What git ignores is left out, and what `.amlignore` excludes by git's patterns; so are `.git`,
caches, virtual environments and the job's own `outputs/` and `logs/`, unless they hold code.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from allranks.snapshot.git import repository_of, start
from allranks.snapshot.ignore import NEVER, IgnoreRules, excluded_by_user, patterns_in

_JOB_FOLDERS = ("logs", "outputs")


# The files by which a folder to leave out is recognised, and why.
_MARKS = {
    ("pyvenv.cfg",): "a virtual environment cannot be moved",
    ("token", "server.lock"): "an allranks home",
}
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
    files = list[File]()
    links = list[str]()
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
    for name, is_tracked in files_of_git(folder):
        if not name.endswith("/"):
            names[name] = is_tracked
        elif (folder / name / ".git").exists():
            names |= {name + inner: tracked for inner, tracked in _names(folder / name).items()}
    # A folder that is ignored itself has no files for git, and holds code nevertheless.
    return names or dict.fromkeys(_walk(folder, rules_without_git(folder)), False)


def _walk(root: Path, ignored: Callable[[str], bool]) -> Iterator[str]:
    """The names of files that are not ignored. Of a folder to leave out only the mark."""
    folders = [""]
    while folders:
        parent = folders.pop()
        with os.scandir(f"{root}/{parent}") as iterator:
            entries = {entry.name: entry for entry in iterator if entry.name not in NEVER}
        marks = [mark for mark in _MARKS if parent and entries.keys() >= {*mark}]
        if marks:
            yield from (parent + file for file in marks[0])
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


def _without_marked(names: Names, notes: list[str]) -> list[str]:
    """The names that are not in folders to leave out."""
    marked: dict[str, str] = {}
    for (first, *others), why in _MARKS.items():
        for name in names:
            folder = name.removesuffix(f"/{first}")
            if folder != name and all(f"{folder}/{file}" in names for file in others):
                marked[folder] = why

    def is_in_one(path: str) -> bool:
        above = accumulate(path.split("/")[:-1], "{}/{}".format) if marked else ()
        return not NEVER.isdisjoint(path.split("/")) or any(parent in marked for parent in above)

    notes += [
        f"left out of the code: {folder}/ ({why})"
        for folder, why in marked.items()
        if not is_in_one(folder)
    ]
    return [name for name in names if not is_in_one(name)]


def _without_job_folders(
    code: Path, names: Names, chosen: Sequence[str], notes: list[str]
) -> list[str]:
    """The names that are not in `logs/` or `outputs/`, which a job has of its own. What git tracks
    in them is code, and so is a package of that name."""

    def is_code(name: str) -> bool:
        top, slash, _ = name.partition("/")
        return top not in _JOB_FOLDERS or (
            bool(slash) and (names[name] or f"{top}/__init__.py" in names)
        )

    kept = [name for name in chosen if is_code(name)]
    for top in _JOB_FOLDERS:
        if not (code / top).is_dir():
            if top in chosen:
                why = f"{top} (the job creates a folder of that name)"
                notes.append(f"left out of the code: {why}")
        elif os.listdir(code / top) and not any(name.startswith(f"{top}/") for name in kept):
            notes.append(f"left out of the code: {top}/ (the job gets its own, empty one)")
    return kept


def _links_note(links: Sequence[str]) -> str:
    some = ", ".join(links[:3]) + (f" and {len(links) - 3} more" if len(links) > 3 else "")
    what = "a link" if len(links) == 1 else "links"
    return (
        f"left out of the code: {some} ({what} out of the folder; to send what is there, replace "
        "it by a copy: cp -rL; a link to a file of the folder has to be relative: ln -sr)"
    )


# Reading a repository of another user is safe: listing files runs nothing that it configures.
_LIST = ("-c", "safe.directory=*", "ls-files", "-z", "-t", "-s")
_WHICH = ("--cached", "--others", "--exclude-standard")
_REPOSITORY = b"160000 "


def files_of_git(folder: Path) -> Iterator[tuple[str, bool]]:
    """The files of a folder that git does not ignore, and whether it tracks them; none where git
    cannot say. The name of a repository inside ends with `/`."""
    if repository_of(folder.resolve()) is None:
        return
    try:
        with start(folder, *_LIST, *_WHICH) as process:
            output, _ = process.communicate()
    except OSError:
        return  # git is missing or cannot be run
    if process.returncode != 0:
        return
    for line in output.split(b"\0")[:-1]:
        is_tracked, rest = line[:1] != b"?", line[2:]
        # MODE OBJECT STAGE, a tab, and the name.
        name = rest.partition(b"\t")[2] if is_tracked else rest
        is_submodule = is_tracked and rest.startswith(_REPOSITORY)
        yield os.fsdecode(name + b"/" if is_submodule else name), is_tracked


def rules_without_git(folder: Path) -> Callable[[str], bool]:
    """Tells which paths of a folder git would ignore by the files in its repository, if none of
    them is tracked. A folder that is ignored itself has its own rules alone."""
    folder = folder.resolve()
    top = repository_of(folder) or folder
    rules = IgnoreRules(top, patterns_in(top / ".git" / "info" / "exclude"))
    within = "" if folder == top else f"{folder.relative_to(top)}/"
    if within and rules(within):
        return IgnoreRules(folder)
    return lambda path: rules(within + path)
