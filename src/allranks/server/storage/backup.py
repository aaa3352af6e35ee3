"""Back up a home into one file: its database, the files that it refers to, and its keys.

The database is copied first, as a consistent snapshot, then the files, so that all files it refers
to exist. The backup holds the home's token and keys, so only its owner can read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from allranks import folder_trees, settings
from allranks.core.transfer_progress import OnProgress, Progress
from allranks.errors import Conflict, NotFound, ServerError, UsageError
from allranks.folder_trees import LONGEST
from allranks.server.storage import backup_archive
from allranks.settings import Home, database, has_record
from allranks.store import database_copy, postgres
from allranks.store.database import HEAD as NEWEST
from allranks.store.database import version_of
from allranks.store.files.blobs import PART
from allranks.store.files.state_folders import CONTENT, HEAD, NAMED, OF_JOBS, VERSIONS, State
from allranks.store.files.trees import GOING, TEMPORARY_PREFIX
from allranks.version import __version__

# MLflow's database, in its folder.
_MLFLOW = "mlflow.db"
# The most backups whose places a home remembers.
_REMEMBERED = 20


class Report(NamedTuple):
    """``torn``: files that shrank while they were read; a restore skips them. ``left_out``: files
    and folders that cannot be read, or whose path is too long to be unpacked anywhere."""

    file: str
    bytes: int
    files: int
    jobs: int
    with_files: bool
    torn: list[str]
    left_out: list[str]


def write(home: Home, target: Path, with_files: bool, report: OnProgress) -> Report:
    """Back up into the file ``target``, or a new file in the folder ``target``. The file appears
    once it is complete and verified. ``report`` receives the progress.

    Raises AllranksError, and OSError such as a full disk."""
    if not has_record(home):
        hint = "check ALLRANKS_HOME; a home has a database once a job was run in it"
        raise NotFound("this home has nothing to back up", where=str(home.root), hint=hint)
    if target.is_dir():
        target = target / time.strftime("allranks-%Y%m%d-%H%M%S.tar")
    if target.exists():
        raise Conflict("the file exists already", where=str(target), hint="choose another name")
    if not target.parent.is_dir():
        raise UsageError("folder not found", where=str(target.parent), hint="create it first")
    where = database(home)
    _require_same_version(where)
    with _beside(target.parent) as folder:
        beside = Path(folder, target.name)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            report(Progress("copying the database"))
            database_copy.take(where, Path(folder, home.database.name))
            left_out = list[str]()
            what = _contents(home, Path(folder), with_files, left_out)
            facts = {"allranks": __version__, "at": time.time(), "with_files": with_files}
            size = _size(home, with_files)
            manifest = backup_archive.pack(file, what, facts, report, size, left_out)
            file.flush()
            os.fsync(file.fileno())
        backup_archive.unpack(beside, None, report)
        jobs = len(database_copy.contents(Path(folder, home.database.name)).jobs)
        beside.rename(target)
    _remember(home, target)
    torn = list(manifest["torn"])
    size = target.stat().st_size
    return Report(str(target), size, len(manifest["files"]), jobs, with_files, torn, left_out)


def _require_same_version(where: Path | str) -> None:
    """To open a PostgreSQL database would upgrade it, under its server and before the backup."""
    if isinstance(where, str) and (version := version_of(where)) not in (None, NEWEST):
        raise ServerError(
            f"the database is of another version ({version}), which alone can copy PostgreSQL's",
            where=postgres.shown(where),
            hint="back it up with that version of allranks, or with pg_dump; then "
            "`allranks server restart --no-backup`",
        )


def _remember(home: Home, target: Path) -> None:
    """Store where the backup is: the error for a damaged database names the newest."""
    backups = [*settings.written_backups(home), str(target)][-_REMEMBERED:]
    with contextlib.suppress(OSError):
        beside = home.backups.with_suffix(".new")
        beside.write_text(json.dumps(backups))
        beside.replace(home.backups)


def _beside(parent: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix=".allranks-backup-", dir=parent)
    except OSError as error:
        message = f"cannot write files there: {error.strerror}"
        raise UsageError(message, where=str(parent), hint="choose a writable folder") from None


def _contents(
    home: Home, folder: Path, with_files: bool, left_out: list[str]
) -> Iterator[tuple[str, Path]]:
    """The files of a backup, by their names in it. Left out is what can be recreated or belongs to
    this machine: environments, caches, working folders, state of engines."""
    yield home.database.name, folder / home.database.name
    for path in (home.token, home.secrets, home.server, home.agents_port, home.certificate):
        yield path.name, path
    blobs = _below(home.blobs, home.blobs.name, left_out)
    yield from ((name, path) for name, path in blobs if not _is_uploaded(path))
    for root in (home.models, *((home.jobs, home.data) if with_files else ())):
        yield from _below(root, root.name, left_out)
    if with_files:
        yield from _states(home.states, left_out)
    if with_files and (home.mlflow / _MLFLOW).exists():
        database_copy.copy(home.mlflow / _MLFLOW, folder / _MLFLOW)
        yield f"{home.mlflow.name}/{_MLFLOW}", folder / _MLFLOW
        yield from _below(home.mlflow / "artifacts", f"{home.mlflow.name}/artifacts", left_out)


def _is_uploaded(blob: Path) -> bool:
    """Whether it is a file of uploaded data, which is in the datastore, or will be."""
    try:
        return blob.name.endswith(PART) or (blob.is_file() and blob.stat().st_nlink > 1)
    except FileNotFoundError:  # gone meanwhile
        return False


def _size(home: Home, with_files: bool) -> int:
    """The approximate number of bytes; jobs may write meanwhile."""
    roots = [home.blobs, home.models]
    if with_files:
        roots += [home.jobs, home.data, home.states, home.mlflow / "artifacts"]
    walks = (walk for root in roots for walk in folder_trees.walk(root))
    total = sum(_bytes(os.path.join(folder, name)) for folder, _, names in walks for name in names)
    return total + _bytes(home.database)


def _bytes(path: str | Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:  # gone meanwhile
        return 0


def _below(folder: Path, name: str, left_out: list[str]) -> Iterator[tuple[str, Path]]:
    """Everything in a folder, except unfinished and discarded folders, and what cannot be kept,
    whose name is added to ``left_out``."""
    pending = [(name, str(folder), True)]
    while pending:
        name, path, is_folder = pending.pop()
        if len(os.fsencode(name)) > LONGEST or folder_trees.is_too_long(path):
            left_out.append(name)
            continue
        entries: list[os.DirEntry[str]] = []
        if is_folder:
            try:
                entries = sorted(os.scandir(path), key=lambda each: each.name, reverse=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:
                left_out.append(name)
                continue
        yield name, Path(path)
        for entry in entries:
            below = entry.is_dir(follow_symlinks=False)
            if not (below and entry.name.startswith((TEMPORARY_PREFIX, GOING))):
                pending.append((f"{name}/{entry.name}", entry.path, below))


def _states(root: Path, left_out: list[str]) -> Iterator[tuple[str, Path]]:
    """State folders, each as a consistent snapshot without partial uploads."""
    yield root.name, root
    for kind in (NAMED, OF_JOBS):
        yield f"{root.name}/{kind}", root / kind
        for state in sorted(path.parent for path in (root / kind).glob(f"[!.]*/{HEAD}")):
            with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=state.parent) as beside:
                _freeze(state, Path(beside))
                for each in _below(Path(beside), f"{root.name}/{kind}/{state.name}", left_out):
                    os.utime(beside)  # otherwise `gc` removes it after an hour
                    yield each


def _freeze(state: Path, beside: Path) -> None:
    """Copy a state's manifests and link the contents that they name. If a content is missing, the
    state may have changed meanwhile, so start over; if the manifests are unchanged, the state
    itself is damaged and the content is left out."""
    (beside / CONTENT).mkdir()
    manifests: dict[str, bytes] = {}
    while (now := _manifests(state)) != manifests:
        manifests = now
        (beside / HEAD).unlink(missing_ok=True)
        shutil.rmtree(beside / VERSIONS, ignore_errors=True)
        (beside / VERSIONS).mkdir()
        for name, data in manifests.items():
            (beside / name).write_bytes(data)
        held = State(beside)
        every = (held.entries(), *(version.entries for version in held.versions()))
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
    """The manifests by name: versions first, then the head, which is never older."""
    numbers: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        numbers = [each for each in os.listdir(state / VERSIONS) if each.isdecimal()]
    manifests: dict[str, bytes] = {}
    for name in (*(f"{VERSIONS}/{number}" for number in numbers), HEAD):
        with contextlib.suppress(FileNotFoundError):
            manifests[name] = (state / name).read_bytes()
    return manifests
