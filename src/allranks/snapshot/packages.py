"""Packages in development that a job imports: their folders are sent with the code, since edits
would otherwise reach a running job, and the record would not hold what it ran."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from allranks.core.job.code_packages import FOLDER, LIST, WHEELS, Import, packed
from allranks.core.job.code_size import is_too_large
from allranks.snapshot.files import File, generated, walk
from allranks.snapshot.ignore import excluded_by_user

# What builds put beside the sources, where git ignores it: the package does not work without.
_BUILT = r"(?s).*\.(?:so|pyd)|(?:.*/)?_?version\.py|.*_pb2(?:_grpc)?\.py|.*\.egg-info/[^/]*"
_TOO_LARGE = "with the code, it exceeds 500 MB or 20,000 files; --allow-large-code sends it"


class Package(NamedTuple):
    """A package and the folder it is imported from, or a folder above. ``problem``: why a copy
    cannot stand in for it. ``only_inside``: it matters only where it is part of the code."""

    name: str
    folder: str
    problem: str = ""
    only_inside: bool = False


def with_packages(
    code: Path | None,
    files: list[File],
    packages: Sequence[Package],
    allow_large: bool,
    notes: list[str],
    wheels: Sequence[Path] = (),
) -> tuple[list[File], list[str]]:
    """Add the packages to the files of ``code``: those inside of it stay in their place, others get
    a folder of their own, and ``wheels`` theirs. Returns the files, and a sentence for each package
    that stays where it is."""
    imports = list[Import]()
    left = list[str]()
    made = [*files, *(File(str(w), f"{FOLDER}/{WHEELS}/{w.name}", os.lstat(w)) for w in wheels)]
    for package in packages:
        within = _inside(package, code, files)
        if within is None and package.only_inside:
            continue
        why, more = package.problem, list[File]()
        try:
            if not why:
                more = _files_of(package, code, within, files, notes)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        size = sum(file.status.st_size for file in (*made, *more))
        if more and is_too_large(len(made) + len(more), size) and not allow_large:
            why = _TOO_LARGE
        if why:
            left.append(
                f"the job imports {package.name} from {package.folder} as it is then, and the "
                f"record does not hold it: {why}"
            )
            continue
        made += more
        copy = _own_folder(package) if within is None else within
        folders = {os.path.normpath(package.folder), os.path.realpath(package.folder)}
        imports += [Import(folder, copy) for folder in folders]
    if imports or wheels:
        made.append(generated(LIST, packed(imports)))
    return sorted(made, key=lambda file: file.name), left


def _own_folder(package: Package) -> str:
    return f"{FOLDER}/{package.name}/"


def _inside(package: Package, code: Path | None, files: Sequence[File]) -> str | None:
    """Where in the code a package lies, None if it does not."""
    if code is None:
        return None
    root = Path(os.path.realpath(package.folder))
    top = Path(os.path.realpath(code))
    if not root.is_relative_to(top):
        return None
    within = "" if root == top else f"{root.relative_to(top)}/"
    return within if any(file.name.startswith(within) for file in files) else None


def _files_of(
    package: Package, code: Path | None, within: str | None, files: Sequence[File], notes: list[str]
) -> list[File]:
    """The files of a package that the code lacks. Raises OSError."""
    if code is not None and within is not None:
        root, copy = code, ""
        existing = [file.name for file in files if file.name.startswith(within)]
        names = _built(root, within, existing, package.name, notes)
    else:
        root = Path(package.folder)
        copy = _own_folder(package)
        own = list[str]()
        existing = [file.name for file in walk(root, own, of_job=False)]
        notes += [note.replace("the code", package.name, 1) for note in own]
        names = existing + _built(root, "", existing, package.name, notes)
    return [File(f"{root}/{name}", copy + name, os.lstat(f"{root}/{name}")) for name in names]


def _built(
    root: Path, within: str, names: Sequence[str], package: str, notes: list[str]
) -> list[str]:
    """The names of files beside these that builds have made, and git ignores. Notes other modules
    that git ignores. Raises OSError."""
    is_excluded = excluded_by_user(root)
    existing = {*names}
    made = list[str]()
    missing = list[str]()
    slash = re.compile("/")
    above = {name[: at.end()] for name in names for at in slash.finditer(name, len(within))}
    folders = sorted({within, *above})
    for folder in folders:
        with os.scandir(root / folder) as entries:
            new = [(folder + entry.name, entry) for entry in entries if not entry.is_symlink()]
        for name, entry in sorted(new, key=lambda item: item[0]):
            if name in existing or is_excluded(name):
                continue
            if entry.is_dir():
                folders += [f"{name}/"] if name.endswith(".egg-info") else []
            elif re.fullmatch(_BUILT, name):
                made.append(name)
            elif name.endswith(".py") and f"{folder}__init__.py" in existing:
                missing.append(name)
    if missing:
        notes.append(f"left out of {package}: {', '.join(missing[:3])} (git ignores it)")
    return made
