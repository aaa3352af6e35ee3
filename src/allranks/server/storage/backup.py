"""A home in one file: its database, what that refers to, and the keys.

The database is copied first, at one moment, and then files: what it refers to was there before it.
It holds the home's token and keys, so it is its owner's alone to read, as the home is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from allranks.errors import Conflict, NotFound, UsageError
from allranks.plan.progress import OnProgress, Progress
from allranks.server.storage import backup_archive
from allranks.server.storage.inventory import GOING
from allranks.settings import Home, database, has_record
from allranks.store import database_copy
from allranks.store.files.state_folders import CONTENT, HEAD, NAMED, OF_JOBS, VERSIONS, State
from allranks.store.files.trees import TEMPORARY_PREFIX
from allranks.version import __version__

# MLflow's database, in its folder.
_MLFLOW = "mlflow.db"


class Report(NamedTuple):
    """``torn``: files that changed while they were read; a restore leaves them out."""

    file: str
    bytes: int
    files: int
    jobs: int
    with_files: bool
    torn: list[str]


def write(home: Home, goal: Path, with_files: bool, report: OnProgress) -> Report:
    """Back up into the file ``goal``, or a new one in the folder ``goal``. It appears once it is
    whole and was read back. ``report`` hears how far it is.

    Raises AllranksError; OSError when there is no room.
    """
    if not has_record(home):
        hint = "ALLRANKS_HOME names another, or nothing was ever run in it"
        raise NotFound("there is nothing to back up in this home", where=str(home.root), hint=hint)
    if goal.is_dir():
        goal = goal / time.strftime("allranks-%Y%m%d-%H%M%S.tar")
    if goal.exists():
        raise Conflict("there is such a file already", where=str(goal), hint="name another")
    if not goal.parent.is_dir():
        raise UsageError("there is no such folder", where=str(goal.parent), hint="make it first")
    with _beside(goal.parent) as folder:
        beside = Path(folder, goal.name)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            report(Progress("copying the database"))
            database_copy.take(database(home), Path(folder, home.database.name))
            what = _what(home, Path(folder), with_files)
            facts = {"allranks": __version__, "at": time.time(), "with_files": with_files}
            manifest = backup_archive.pack(file, what, facts, report, _size(home, with_files))
            file.flush()
            os.fsync(file.fileno())
        backup_archive.unpack(beside, None, report)
        jobs = len(database_copy.contents(Path(folder, home.database.name)).jobs)
        beside.rename(goal)
    torn = list(manifest["torn"])
    size = goal.stat().st_size
    return Report(str(goal), size, len(manifest["files"]), jobs, with_files, torn)


def _beside(parent: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix=".allranks-backup-", dir=parent)
    except OSError as error:
        said = f"no file can be written there: {error.strerror}"
        raise UsageError(said, where=str(parent), hint="name a file on a disk") from None


def _what(home: Home, folder: Path, with_files: bool) -> Iterator[tuple[str, Path]]:
    """Of a home, by names in its backup: not what is made anew when it is missed, nor what is of
    this machine: environments, caches, working folders, what engines know."""
    yield home.database.name, folder / home.database.name
    for path in (home.token, home.secrets, home.server, home.door, home.certificate):
        yield path.name, path
    for root in (
        home.blobs,
        home.models,
        *((home.jobs, home.data) if with_files else ()),
    ):
        yield from _below(root, root.name)
    if with_files:
        yield from _states(home.states)
    if with_files and (home.mlflow / _MLFLOW).exists():
        database_copy.copy(home.mlflow / _MLFLOW, folder / _MLFLOW)
        yield f"{home.mlflow.name}/{_MLFLOW}", folder / _MLFLOW
        yield from _below(home.mlflow / "artifacts", f"{home.mlflow.name}/artifacts")


def _size(home: Home, with_files: bool) -> int:
    """About how many bytes that is: jobs go on writing meanwhile."""
    roots = [home.blobs, home.models]
    if with_files:
        roots += [home.jobs, home.data, home.states, home.mlflow / "artifacts"]
    walks = (walk for root in roots for walk in os.walk(root))
    found = sum(_bytes(os.path.join(folder, name)) for folder, _, names in walks for name in names)
    return found + _bytes(home.database)


def _bytes(path: str | Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:  # gone meanwhile
        return 0


def _below(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """All in a folder, but for what is coming or going."""
    try:
        entries = sorted(os.scandir(folder), key=lambda each: each.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    yield name, folder
    for each in entries:
        if each.is_dir(follow_symlinks=False):
            if not each.name.startswith((TEMPORARY_PREFIX, GOING)):
                yield from _below(Path(each.path), f"{name}/{each.name}")
        else:
            yield f"{name}/{each.name}", Path(each.path)


def _states(root: Path) -> Iterator[tuple[str, Path]]:
    """State folders, each as it was at one moment, without what is coming of contents."""
    yield root.name, root
    for kind in (NAMED, OF_JOBS):
        yield f"{root.name}/{kind}", root / kind
        for state in sorted(each.parent for each in (root / kind).glob(f"[!.]*/{HEAD}")):
            with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=state.parent) as beside:
                _hold(state, Path(beside))
                for each in _below(Path(beside), f"{root.name}/{kind}/{state.name}"):
                    os.utime(beside)  # `gc` takes what was left an hour ago
                    yield each


def _hold(state: Path, beside: Path) -> None:
    """ServerLock on to what a state is now: its manifests, and links to all contents that they
    name. One that is gone was of a moment that is over, so it is looked at again; where no manifest
    is another by then it is the state that is damaged."""
    (beside / CONTENT).mkdir()
    told: dict[str, bytes] = {}
    while (now := _manifests(state)) != told:
        told = now
        (beside / HEAD).unlink(missing_ok=True)
        shutil.rmtree(beside / VERSIONS, ignore_errors=True)
        (beside / VERSIONS).mkdir()
        for name, data in told.items():
            (beside / name).write_bytes(data)
        held = State(beside)
        every = (held.entries(), *(each.entries for each in held.versions()))
        named = {e.sha256 for entries in every for e in entries.values() if e.what == "file"}
        there = set(os.listdir(beside / CONTENT))
        for sha256 in there - named:
            (beside / CONTENT / sha256).unlink()
        gone = 0
        for sha256 in named - there:
            try:
                os.link(state / CONTENT / sha256, beside / CONTENT / sha256)
            except FileNotFoundError:
                gone += 1
        if not gone:
            return


def _manifests(state: Path) -> dict[str, bytes]:
    """By name: versions, and then the head, which is never older than they are."""
    numbers: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        numbers = [each for each in os.listdir(state / VERSIONS) if each.isdecimal()]
    found: dict[str, bytes] = {}
    for name in (*(f"{VERSIONS}/{each}" for each in numbers), HEAD):
        with contextlib.suppress(FileNotFoundError):
            found[name] = (state / name).read_bytes()
    return found
