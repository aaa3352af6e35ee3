"""A job that continues another one: its record begins with copies of what that job left.

Copies, not hard links: a script that opens its checkpoint for writing would change the file of the
ended job, too. On a file system that shares blocks between files (XFS, Btrfs) the kernel copies
nothing until one of them is written.

The copies lie beside the records until the job is recorded, and get their place in one step. A
server that is killed leaves no half of them in a job; `gc` removes what it left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from allranks.errors import Conflict
from allranks.plan.job.continuation import Carried, File, carryover, files_of_state
from allranks.plan.plan import Task
from allranks.server.dependencies import Services
from allranks.server.storage.inventory import GOING
from allranks.statuses import TERMINAL
from allranks.store.files.trees import TEMPORARY_PREFIX, copy_contents
from allranks.store.job_rows import JobRow


class Continuation:
    """The record of the job ``task``, which continues ``old``; without ``old`` it begins empty.

    Entering it copies; leaving it without ``keep`` takes everything back.
    """

    def __init__(self, services: Services, task: Task, old: JobRow | None) -> None:
        self._services, self._task, self._old = services, task, old
        jobs = services.home.jobs
        self._goal, self._beside = (
            jobs / task.job,
            jobs / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}",
        )
        self._kept = self._placed = False
        self.carried: Carried | None = None

    def __enter__(self) -> Continuation:
        if self._old is not None:
            try:
                self.carried = self._copied(self._old)
            except OSError as error:
                shutil.rmtree(self._beside, ignore_errors=True)
                said = (error.strerror or str(error)).lower()
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                mend = "make room there" if full else "see that the server can read it"
                raise Conflict(
                    f"what {self._old.name} left cannot be copied: {said}",
                    where=os.fsencode(error.filename or self._beside).decode(errors="replace"),
                    hint=f"{mend}, or begin without it: `job restart --fresh`, "
                    "`run` without --from",
                ) from error
            except BaseException:
                shutil.rmtree(self._beside, ignore_errors=True)
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._beside, ignore_errors=True)
        if self._placed and not self._kept:
            shutil.rmtree(self._goal, ignore_errors=True)

    def place(self) -> None:
        """Give the copies their place, and the job its state; the name is known to be free."""
        old, services = self._old, self._services
        if old is not None and self.carried is not None:
            services.records.get(old.name)  # `gc --jobs` may have removed it meanwhile
            with contextlib.suppress(FileNotFoundError):  # of a job that was never recorded
                self._goal.rename(self._goal.with_name(f"{GOING}{secrets.token_hex(8)}"))
            self._beside.rename(self._goal)
            self._placed = True
        entries = services.states.begin(self._task, old)
        if self.carried is not None:
            self.carried = self.carried.add(files_of_state(entries))

    def keep(self) -> None:
        """The job is recorded: all of it stays."""
        self._kept = True

    def about(self) -> dict[str, Any]:
        """What the job's first event tells of it."""
        return {} if self.carried is None else {"message": self.carried.sentence(time.time())}

    def _copied(self, old: JobRow) -> Carried:
        source, wanted = self._services.home.jobs / old.name, carryover(old.plan.task, self._task)
        self._beside.mkdir(parents=True)
        copy = _Copy(str(source), str(self._goal), self._beside)
        there = (each for each in wanted.folders if (source / each).is_dir())
        files = [file for each in there for file in copy.folder(each)]
        return Carried(old.name, notes=wanted.notes).add(files)


class _Copy:
    """Copies folders of the record ``source``, which are to be those of the record ``goal``."""

    def __init__(self, source: str, goal: str, beside: Path) -> None:
        self._source, self._goal, self._beside = source, goal, beside

    def folder(self, name: str) -> Iterator[File]:
        """One folder of the record with everything below it; its files. Raises OSError."""
        above = Path(self._beside, name).parent
        above.mkdir(parents=True, exist_ok=True)
        ways, folders = [name], list[str]()
        while ways:
            folder = ways.pop()
            folders.append(folder)
            Path(self._beside, folder).mkdir()
            with os.scandir(f"{self._source}/{folder}") as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        ways.append(path)
                    elif entry.is_symlink():
                        target = self._target(os.readlink(entry.path))
                        Path(self._beside, path).symlink_to(target)
                    elif entry.is_file(follow_symlinks=False):
                        yield self._file(path)
        for folder in reversed(folders):
            shutil.copystat(f"{self._source}/{folder}", self._beside / folder)

    def _file(self, path: str) -> File:
        source, goal = f"{self._source}/{path}", self._beside / path
        with open(source, "rb") as file, goal.open("xb") as copy:
            status = os.fstat(file.fileno())
            copy_contents(file, copy, status.st_size)
        shutil.copystat(source, goal)
        # `gc` takes what nobody has touched for an hour for an abandoned copy.
        os.utime(self._beside)
        shown = os.fsencode(path).decode(errors="replace")
        return File(shown, status.st_size, status.st_mtime)

    def _target(self, target: str) -> str:
        """An absolute link to another file of the record (`latest -> …/step-5`) stays in it: else
        the new job would write to the files of the old one."""
        rest = target.removeprefix(f"{self._source}/")
        return target if rest == target else f"{self._goal}/{rest}"


def ended(row: JobRow) -> JobRow:
    """The job, once it has ended. Raises Conflict before that: it still writes its files."""
    if row.record.status not in TERMINAL:
        then = row.record.then
        ending = row.record.canceled or (then is not None and then.purpose == "finish")
        wait, cancel = f"allranks job wait {row.name}", f"allranks job cancel {row.name}"
        raise Conflict(
            f"{row.name} is {'ending' if ending else row.record.status} and has not ended",
            hint=f"wait for its end: {wait}" if ending else f"cancel it first: {cancel}",
        )
    return row


def end_of(row: JobRow) -> str:
    """Why a job ended, in a word."""
    why = row.record.then.reason if row.record.then is not None else ""
    return str(row.error["reason"] if row.error else why)
