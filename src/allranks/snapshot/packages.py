"""Packages in development that a job imports: their folders are sent with the code, since edits
would otherwise reach a running job, and the record would not hold what it ran."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from allranks.plan.job.code_packages import FOLDER, LIST, Import, packed
from allranks.plan.job.code_size import is_too_large
from allranks.snapshot.files import File, generated, walk
from allranks.snapshot.ignore import excluded_by_user

# What builds put beside the sources, where git ignores it: the package does not work without.
_BUILT = r"(?s).*\.(?:so|pyd)|_?version\.py|.*_pb2(?:_grpc)?\.py"
_METADATA = ".egg-info"
_TOO_LARGE = "with the code, it exceeds 500 MB or 20,000 files; --allow-large-code sends it"


class Package(NamedTuple):
    """A package and the folder it is imported from, or a folder above. ``problem``: why a copy
    cannot stand in for it. ``only_inside``: it matters only where it is part of the code."""

    name: str
    folder: str
    problem: str = ""
    only_inside: bool = False


class Along(NamedTuple):
    """The code's files with those of packages, and a sentence for each that stays where it is."""

    files: list[File]
    left: list[str]


def with_packages(
    code: Path | None,
    files: list[File],
    packages: Sequence[Package],
    allow_large: bool,
    notes: list[str],
) -> Along:
    """Add the packages to the files of ``code``: those inside of it stay in their place, others get
    a folder of their own."""
    imports, left, made = list[Import](), list[str](), [*files]
    for package in packages:
        folders = {package.folder, os.path.realpath(package.folder)}
        why = package.problem
        try:
            if not why:
                within = _inside(package, code, files)
                if within is None and package.only_inside:
                    continue
                copy, more = _files_of(package, code, within, files, notes)
                size = sum(file.status.st_size for file in (*made, *more))
                if more and is_too_large(len(made) + len(more), size) and not allow_large:
                    why = _TOO_LARGE
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        if why:
            left.append(
                f"the job imports {package.name} from {package.folder} as it is then, and the "
                f"record does not hold it: {why}"
            )
            continue
        made += more
        imports += [Import(folder, copy) for folder in folders]
    if imports:
        made.append(generated(LIST, packed(imports)))
    return Along(sorted(made, key=lambda file: file.name), left)


def _inside(package: Package, code: Path | None, files: Sequence[File]) -> str | None:
    """Where in the code a package lies, None if it does not."""
    if code is None:
        return None
    root, top = Path(os.path.realpath(package.folder)), Path(os.path.realpath(code))
    if not root.is_relative_to(top):
        return None
    within = "" if root == top else f"{root.relative_to(top)}/"
    return within if any(file.name.startswith(within) for file in files) else None


def _files_of(
    package: Package, code: Path | None, within: str | None, files: Sequence[File], notes: list[str]
) -> tuple[str, list[File]]:
    """Where in the code a package is copied to, and its files that the code lacks. Raises
    OSError."""
    if code is not None and within is not None:
        names = [file.name for file in files if file.name.startswith(within)]
        built = _built(code, within, names, package.name, notes)
        return within, [_file(code, name, name) for name in built]
    root, own = Path(package.folder), list[str]()
    names = [file.name for file in walk(root, own, of_job=False)]
    notes += [note.replace("the code", package.name, 1) for note in own]
    names += _built(root, "", names, package.name, notes)
    copy = f"{FOLDER}/{package.name}/"
    return copy, [_file(root, name, copy + name) for name in names]


def _file(root: Path, name: str, place: str) -> File:
    path = f"{root}/{name}"
    return File(path, place, os.lstat(path))


def _built(
    root: Path, within: str, names: Sequence[str], package: str, notes: list[str]
) -> list[str]:
    """The names of files beside these that builds have made, and git ignores. Notes other modules
    that git ignores. Raises OSError."""
    is_excluded = excluded_by_user(root)
    known, made, missing = {*names}, list[str](), list[str]()
    folders = {within, *(name[:at] for name in names for at in _slashes(name, len(within)))}
    for folder in sorted(folders):
        for name, is_folder in _unknown(root, folder, known):
            if is_folder and name.endswith(_METADATA):
                made += [
                    each for each, is_below in _unknown(root, f"{name}/", known) if not is_below
                ]
            elif is_folder or is_excluded(name):
                continue
            elif re.fullmatch(_BUILT, name[len(folder) :]):
                made.append(name)
            elif name.endswith(".py") and f"{folder}__init__.py" in known:
                missing.append(name)
    if missing:
        notes.append(f"left out of {package}: {', '.join(missing[:3])} (git ignores it)")
    return made


def _slashes(name: str, begin: int) -> Iterator[int]:
    """Behind which characters of a name the names of its folders end."""
    while at := name.find("/", begin) + 1:
        yield at
        begin = at


def _unknown(root: Path, folder: str, known: set[str]) -> Iterator[tuple[str, bool]]:
    """What is in a folder beside the ``known`` files, and whether it is a folder. No links."""
    with os.scandir(root / folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = folder + entry.name
            if name not in known and not entry.is_symlink():
                yield name, entry.is_dir()
