"""Start a job from copies of another job's files.

Files are copied, not hard-linked: a script that opens its checkpoint for writing would change the
ended job's file as well. File systems with copy-on-write (XFS, Btrfs) share the blocks.

The copies are made beside the jobs' folders, and renamed in one step when the job is recorded. If
the server is killed, no job has partial copies; `gc` removes them.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from allranks import folder_trees
from allranks.core.data.state_manifest import Entries
from allranks.core.job.continuation import Carried, File, carryover, files_of_state
from allranks.core.plan import Task
from allranks.errors import Conflict
from allranks.server.assets.node_files import files_in
from allranks.server.dependencies import Services
from allranks.statuses import TERMINAL, JobStatus, Purpose
from allranks.store.files.trees import TEMPORARY_PREFIX, copy_contents
from allranks.store.jobs.job_rows import JobRow


class Continuation:
    """Creates the folder and state of the job ``task``, which continues ``old``, or starts empty.

    A context manager: entering copies, leaving without ``keep`` undoes everything.
    """

    def __init__(self, services: Services, task: Task, old: JobRow | None) -> None:
        self._services, self._task, self._old = services, task, old
        jobs = services.home.jobs
        self._destination, self._beside = (
            jobs / task.job,
            jobs / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}",
        )
        self._kept = self._placed = False
        self.carried: Carried | None = None
        self._entries: Entries = {}

    def __enter__(self) -> Continuation:
        if self._old is not None:
            try:
                self.carried = self._copy(self._old)
                if self._task.is_received:
                    self._entries = files_in(self._beside)
            except OSError as error:
                folder_trees.remove(self._beside, ignore_errors=True)
                reason = (error.strerror or str(error)).lower()
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                fix = "free disk space" if full else "make it readable for the server"
                raise Conflict(
                    f"cannot copy the files of {self._old.name}: {reason}",
                    where=os.fsencode(error.filename or self._beside).decode(errors="replace"),
                    hint=f"{fix}, or start without them: `job restart --fresh`, or `run` "
                    "without --from",
                ) from error
            except BaseException:
                folder_trees.remove(self._beside, ignore_errors=True)
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        folder_trees.remove(self._beside, ignore_errors=True)
        if self._placed and not self._kept:
            folder_trees.remove(self._destination, ignore_errors=True)
            if self._entries:
                self._services.node_files.delete(self._task.job)

    def place(self) -> None:
        """Move the copies into place and create the state; the job's name must be free."""
        old, services = self._old, self._services
        if old is not None and self.carried is not None:
            services.records.get(old.name)  # `gc --jobs` may have removed it meanwhile
        set_aside(services, self._task)
        if old is not None and self.carried is not None:
            self._beside.rename(self._destination)
            self._placed = True
            if self._entries:
                services.node_files.begin(self._task, self._destination, self._entries)
        entries = services.states.begin(self._task, old)
        if self.carried is not None:
            self.carried = self.carried.add(files_of_state(entries))

    def keep(self) -> None:
        """Keep everything, because the job is recorded."""
        self._kept = True

    def about(self) -> dict[str, Any]:
        """The data of the job's first event."""
        return {} if self.carried is None else {"message": self.carried.sentence(time.time())}

    def _copy(self, old: JobRow) -> Carried:
        source, carry = self._services.home.jobs / old.name, carryover(old.plan.task, self._task)
        self._beside.mkdir(parents=True)
        copy = _Copy(str(source), str(self._destination), self._beside)
        folders = (folder for folder in carry.folders if (source / folder).is_dir())
        files = [file for folder in folders for file in copy.folder(folder)]
        work = self._services.working_folders.carry(old, self._task, self._beside)
        notes = (*carry.notes, *work.notes)
        if copy.left_out:
            notes = (*notes, f"left out, because their paths are too long: {len(copy.left_out)}")
        is_complete = old.record.status is JobStatus.COMPLETED and not work.files
        kept = _kept_of_work(source) if is_complete else 0
        return Carried(old.name, notes=notes, kept=kept).add([*files, *work.files])


def _kept_of_work(record: Path) -> int:
    """How many files a job kept of its working folder at its end."""
    return sum(len(files) for _, _, files in folder_trees.walk(record / "artifacts" / "work"))


def set_aside(services: Services, task: Task) -> None:
    """Rename the folder of a new job if it exists although no such job was ever recorded: what an
    earlier job left there is not the new one's. Needs the admission lock."""
    folder = Path(task.record)
    if os.path.lexists(folder) and not services.records.ever_existed(task.job):
        aside = f".unrecorded-{secrets.token_hex(4)}-{folder.name}"
        folder.rename(folder.with_name(aside[:255]))


class _Copy:
    """Copies folders of the job folder ``source`` to ``beside``, later renamed ``destination``."""

    def __init__(self, source: str, destination: str, beside: Path) -> None:
        self._source, self._destination, self._beside = source, destination, beside
        # Files and folders whose path is too long.
        self.left_out: list[str] = []

    def folder(self, name: str) -> Iterator[File]:
        """Copy one folder recursively; yields its files. Raises OSError."""
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
                    if self._is_too_long(path):
                        self.left_out.append(path)
                    elif entry.is_dir(follow_symlinks=False):
                        ways.append(path)
                    elif entry.is_symlink():
                        target = self._target(os.readlink(entry.path))
                        Path(self._beside, path).symlink_to(target)
                    elif entry.is_file(follow_symlinks=False):
                        yield self._file(path)
        for folder in reversed(folders):
            shutil.copystat(f"{self._source}/{folder}", self._beside / folder)

    def _is_too_long(self, path: str) -> bool:
        roots = (self._source, self._destination, str(self._beside))
        return any(folder_trees.is_too_long(f"{root}/{path}") for root in roots)

    def _file(self, path: str) -> File:
        source, destination = f"{self._source}/{path}", self._beside / path
        with open(source, "rb") as file, destination.open("xb") as copy:
            status = os.fstat(file.fileno())
            copy_contents(file, copy, status.st_size)
        shutil.copystat(source, destination)
        # `gc` deletes copies that have not changed for an hour.
        os.utime(self._beside)
        shown = os.fsencode(path).decode(errors="replace")
        return File(shown, status.st_size, status.st_mtime)

    def _target(self, target: str) -> str:
        """The target of a link. Absolute targets inside the old folder (`latest -> …/step-5`) are
        changed to the new one; else the new job would write to the old job's files."""
        rest = target.removeprefix(f"{self._source}/")
        return target if rest == target else f"{self._destination}/{rest}"


def ended(row: JobRow) -> JobRow:
    """The job if it has ended. Raises Conflict for a live job, which still writes its files."""
    if row.record.status not in TERMINAL:
        then = row.record.then
        ending = row.record.canceled or (then is not None and then.purpose is Purpose.FINISH)
        wait, cancel = f"allranks job wait {row.name}", f"allranks job cancel {row.name}"
        raise Conflict(
            f"{row.name} is {'ending' if ending else row.record.status} and has not ended",
            hint=f"wait for it: {wait}" if ending else f"cancel it first: {cancel}",
        )
    return row


def end_of(row: JobRow) -> str:
    """The reason why a job ended."""
    why = row.record.then.reason if row.record.then is not None else ""
    return str(row.error["reason"] if row.error else why)
