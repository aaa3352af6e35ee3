"""A home from its backup. All is unpacked beside and looked at; then a note is written of what
goes where, and from that moment on the home is restored: whoever comes next, this command again or
the next server, does what the note says, however often that is cut short.

What was there is put aside, never thrown away. What is of this machine stays: by what engines know
and what agents left, the next server finds those that still run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from allranks import file_locks, settings
from allranks.errors import Conflict, NotFound, ServerError
from allranks.plan.amounts import counted
from allranks.plan.progress import OnProgress, Progress
from allranks.server.storage import backup_archive
from allranks.settings import Home
from allranks.store import database, database_copy
from allranks.store.files.state_folders import OF_JOBS

_NEW, _NOTE = "new", "note.json"


class Report(NamedTuple):
    """``live``: jobs that had not ended; ``aside``: where that lies which was there before."""

    home: str
    at: float
    jobs: int
    live: list[str]
    files: int
    aside: str | None


def restore(home: Home, backup: Path, force: bool, report: OnProgress) -> Report:
    """Make the home what the backup says. Raises AllranksError, and nothing has changed then, when
    a server uses the home, it has jobs and ``force`` is not given, or the backup is not sound;
    OSError when there is no room."""
    if not backup.is_file():
        said = "that is a folder, not a backup" if backup.is_dir() else "there is no such file"
        raise NotFound(said, where=str(backup), hint="`allranks server backup`")
    settings.make(home)
    where = settings.database(home)
    lock = file_locks.take(home.lock)
    if lock is None:
        raise Conflict(
            "a server of this home is running",
            where=str(home.root),
            hint="`allranks server stop` ends it, and the jobs of this machine; or restore into "
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


def finish(home: Home) -> None:
    """Do what is left to do of a restore that was cut short, if there is one. The home's lock is
    to be held. Twice is once."""
    coming = home.restoring
    try:
        note = json.loads((coming / _NOTE).read_text())
    except FileNotFoundError:
        shutil.rmtree(coming, ignore_errors=True)  # it had not come so far
        return
    aside = home.root / note["aside"]
    for name in note["away"]:
        _rename(home.root / name, aside / name)
    where = settings.database(home)
    if isinstance(where, str):
        _load(coming / _NEW / home.database.name, where, aside / home.database.name)
    for name in note["units"]:
        if not os.path.lexists(coming / _NEW / name):
            continue  # done before
        for each in _with_companions(home, name):
            _rename(home.root / each, aside / each)
        _rename(coming / _NEW / name, home.root / name)
    (coming / _NOTE).unlink()
    shutil.rmtree(coming, ignore_errors=True)


def _load(copy: Path, where: str, aside: Path) -> None:
    """Put a copy into a database that is not a file, and what it had aside."""
    if not copy.exists():
        return  # done before
    if not aside.exists():
        aside.parent.mkdir(exist_ok=True, mode=0o700)
        beside = aside.with_name(f"{aside.name}.new")
        beside.unlink(missing_ok=True)
        database_copy.take(where, beside)
        beside.rename(aside)
    database_copy.load(copy, where)
    copy.unlink()


def _expect_no_jobs(home: Home, where: Path | str) -> None:
    try:
        jobs = database_copy.count(where)
    except ServerError as error:
        what = f"what this home has cannot be told: {error.message}"
    else:
        what = f"this home has {counted(jobs, 'job')}" if jobs else ""
    if what:
        hint = "restore into another ALLRANKS_HOME, or --force: what is there is put aside"
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
        holds = database_copy.contents(new / home.database.name)
        for path in _too_new(new / home.jobs.name, holds):
            shutil.rmtree(path)
        aside = time.strftime("before-restore-%Y%m%d-%H%M%S")
        away = [str(path.relative_to(home.root)) for path in _strangers(home, new, holds)]
        _note(home, {"aside": aside, "away": away, "units": [*_units(new)]})
    except BaseException:
        shutil.rmtree(home.restoring, ignore_errors=True)
        raise
    report(Progress("putting it in place"))
    finish(home)
    where = str(home.root / aside) if (home.root / aside).exists() else None
    live = sorted(holds.live)
    return Report(
        str(home.root), manifest["at"], len(holds.jobs), live, len(manifest["files"]), where
    )


def _strangers(home: Home, new: Path, holds: database_copy.Contents) -> Iterator[Path]:
    """What the restored record does not speak of, and what would mix with what comes."""
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
    """Output of attempts that the record has not come to. An agent that runs one of those sends it
    once more; one that is started writes its own."""
    for name, (attempt, begun) in holds.live.items():
        with contextlib.suppress(FileNotFoundError):
            for each in (jobs / name / "attempts").iterdir():
                if int(each.name) >= attempt + begun:
                    yield each


def _units(new: Path) -> Iterator[str]:
    """What is put in place at one stroke: a file, a blob, a model, the record of a job."""
    for path in sorted(new.iterdir()):
        if path.name in ("models", "jobs"):
            yield from (f"{path.name}/{each.name}" for each in sorted(path.iterdir()))
        elif path.name == "blobs":
            files = sorted(each for each in path.glob("*/*") if each.is_file())
            yield from (str(each.relative_to(new)) for each in files)
        else:
            yield path.name


def _with_companions(home: Home, name: str) -> Iterator[str]:
    """Files that are of no use without it, and harm with another: SQLite's log, before all."""
    if name == home.database.name:
        yield f"{name}-wal"
        yield f"{name}-shm"
    yield name


def _note(home: Home, note: dict[str, Any]) -> None:
    """Once it is there, the home is restored: so all it speaks of is on the disk before."""
    os.sync()
    beside = home.restoring / f"{_NOTE}.new"
    with beside.open("w") as file:
        json.dump(note, file)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(home.restoring / _NOTE)


def _rename(path: Path, goal: Path) -> None:
    if os.path.lexists(path):
        goal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.rename(goal)
