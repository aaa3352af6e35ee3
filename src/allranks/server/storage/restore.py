"""Restore a home from a backup. The backup is unpacked and verified beside the home; then a
journal of all moves is written. From then on the restore is committed: this command or the next
server carries out the journal, even after several interruptions.

Replaced files are moved aside and never deleted. State of this machine stays, so that the next
server finds gangs that are still running.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from allranks import file_locks, folder_trees, settings
from allranks.core.amounts import counted
from allranks.core.transfer_progress import OnProgress, Progress
from allranks.errors import Conflict, NotFound, ServerError, UsageError
from allranks.server.assets.datastores import Datastores
from allranks.server.storage import backup_archive
from allranks.settings import Home
from allranks.store import database, database_copy
from allranks.store.files.state_folders import OF_JOBS
from allranks.store.key_values import Settings

_NEW, _JOURNAL = "new", "note.json"


class Report(NamedTuple):
    """``live``: jobs that had not ended; ``aside``: the folder with the replaced files;
    ``port_in_use``: that of the home in the backup, if another program has it."""

    home: str
    at: float
    jobs: int
    live: list[str]
    files: int
    aside: str | None
    port_in_use: int | None = None


def restore(home: Home, backup: Path, force: bool, report: OnProgress) -> Report:
    """Replace the content of the home by the backup. Raises AllranksError, with nothing changed, if
    a server is running, the home has jobs and ``force`` is not given, or the backup is damaged;
    OSError for a full disk."""
    require_file(backup)
    settings.make(home)
    where = settings.database(home)
    lock = file_locks.take(home.lock)
    if lock is None:
        raise Conflict(
            "a server of this home is running",
            where=str(home.root),
            hint="stop it and the jobs of this machine: allranks server stop; or restore into "
            "another ALLRANKS_HOME",
        )
    held = None
    try:
        held = database.lock_database(where)
        settings.keep_database(home)
        finish(home)
        if (isinstance(where, str) or where.exists()) and not force:
            _expect_no_jobs(home, where)
        return _restore(home, backup, report)
    finally:
        if held is not None:
            held.release()
        os.close(lock)


def require_file(backup: Path) -> None:
    """Raises NotFound."""
    if not backup.is_file():
        message = "a folder, not a backup" if backup.is_dir() else "backup not found"
        raise NotFound(message, where=str(backup), hint="create one: allranks server backup")


def finish(home: Home) -> None:
    """Complete an interrupted restore, if any. Needs the home's lock. Idempotent."""
    coming = home.restoring
    try:
        journal = json.loads((coming / _JOURNAL).read_text())
    except FileNotFoundError:
        folder_trees.remove(coming, ignore_errors=True)  # it was interrupted before its journal
        return
    aside = home.root / journal["aside"]
    for name in journal["away"]:
        _rename(home.root / name, aside / name)
    where = settings.database(home)
    if isinstance(where, str):
        _load(coming / _NEW / home.database.name, where, aside / home.database.name)
    for name in journal["units"]:
        if not os.path.lexists(coming / _NEW / name):
            continue  # done already
        for file in _with_companions(home, name):
            _rename(home.root / file, aside / file)
        _rename(coming / _NEW / name, home.root / name)
    (coming / _JOURNAL).unlink()
    folder_trees.remove(coming, ignore_errors=True)


def _load(copy: Path, where: str, aside: Path) -> None:
    """Load a copy into a PostgreSQL database, and move its previous content aside."""
    if not copy.exists():
        return  # done already
    if not aside.exists():
        aside.parent.mkdir(exist_ok=True, mode=0o700)
        beside = aside.with_name(f"{aside.name}.new")
        beside.unlink(missing_ok=True)
        database_copy.take(where, beside)
        beside.rename(aside)
    database_copy.load(copy, where)
    copy.unlink()


def _expect_no_jobs(home: Home, database: Path | str) -> None:
    try:
        jobs = database_copy.count(database)
    except ServerError as error:
        what = f"cannot read the jobs of this home: {error.message}"
    else:
        what = f"this home has {counted(jobs, 'job')}" if jobs else ""
    if what:
        hint = "restore into another ALLRANKS_HOME, or use --force, which moves the jobs aside"
        raise Conflict(what, where=str(home.root), hint=hint)


def _restore(home: Home, backup: Path, report: OnProgress) -> Report:
    new = home.restoring / _NEW
    try:
        new.mkdir(parents=True, mode=0o700)
        manifest = backup_archive.unpack(backup, new, report)
        for name in manifest["torn"]:
            (new / name).unlink(missing_ok=True)
        report(Progress("checking the database"))
        database_copy.check(new / home.database.name)
        with database.opened_database(new / home.database.name) as copy:
            Datastores.leave_upload_folders(Settings(copy))
        holds = database_copy.contents(new / home.database.name)
        if paths := [name for name in holds.jobs if "/" in name or name.startswith(".")]:
            message = f"the backup is damaged: {paths[0]!r} is no job's name"
            raise UsageError(message, where=str(backup), hint="use another backup")
        for path in _too_new(new / home.jobs.name, holds):
            folder_trees.remove(path)
        port_in_use = _give_up_port(new / home.server.name)
        aside = time.strftime("before-restore-%Y%m%d-%H%M%S")
        away = [str(path.relative_to(home.root)) for path in _strangers(home, new, holds)]
        _write_journal(home, {"aside": aside, "away": away, "units": [*_units(new)]})
    except BaseException:
        folder_trees.remove(home.restoring, ignore_errors=True)
        raise
    report(Progress("moving files into place"))
    finish(home)
    where = str(home.root / aside) if (home.root / aside).exists() else None
    live = sorted(holds.live)
    return Report(
        str(home.root),
        manifest["at"],
        len(holds.jobs),
        live,
        len(manifest["files"]),
        where,
        port_in_use,
    )


def _give_up_port(server_file: Path) -> int | None:
    """Let the restored home choose a port of its own if another program has the one in its backup,
    as the server of the original does on the same machine. Returns that port."""
    try:
        port = int(json.loads(server_file.read_text())["port"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            server_file.unlink()
            return port
    return None


def _strangers(home: Home, new: Path, holds: database_copy.Contents) -> Iterator[Path]:
    """Files that the restored record does not mention, or that would mix with restored ones."""
    for folder in home.jobs.iterdir():
        if folder.name not in holds.jobs:
            yield folder
    for path in _too_new(home.jobs, holds):
        if not (new / path.relative_to(home.root)).parents[1].exists():
            yield path
    if not (new / home.states.name).exists():
        for state in (home.states / OF_JOBS).glob("[!.]*"):
            if state.name not in holds.jobs:
                yield state


def _too_new(jobs: Path, holds: database_copy.Contents) -> Iterator[Path]:
    """Output of attempts that the restored record does not have. Running agents send it again; new
    attempts write their own."""
    for name, (attempt, begun) in holds.live.items():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # Links of a backup lead anywhere.
            above, _ = folder_trees.open_parent(jobs, f"{name}/attempts/-")
            try:
                numbers = os.listdir(f"/proc/self/fd/{above}")
            finally:
                os.close(above)
            for number in numbers:
                if number.isdecimal() and int(number) >= attempt + begun:
                    yield jobs / name / "attempts" / number


def _units(new: Path) -> Iterator[str]:
    """What is moved in one step: a file, a blob, a model, the folder of a job."""
    for path in sorted(new.iterdir()):
        if path.name in ("models", "jobs"):
            yield from (f"{path.name}/{each.name}" for each in sorted(path.iterdir()))
        elif path.name == "blobs":
            files = sorted(each for each in path.glob("*/*") if each.is_file())
            yield from (str(file.relative_to(new)) for file in files)
        else:
            yield path.name


def _with_companions(home: Home, name: str) -> Iterator[str]:
    """The file with those that belong to it: SQLite's log and shared memory."""
    if name == home.database.name:
        yield f"{name}-wal"
        yield f"{name}-shm"
    yield name


def _write_journal(home: Home, journal: dict[str, Any]) -> None:
    """Write the journal, which commits the restore, after everything is on the disk."""
    os.sync()
    beside = home.restoring / f"{_JOURNAL}.new"
    with beside.open("w") as file:
        json.dump(journal, file)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(home.restoring / _JOURNAL)


def _rename(path: Path, target: Path) -> None:
    if os.path.lexists(path):
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.rename(target)
