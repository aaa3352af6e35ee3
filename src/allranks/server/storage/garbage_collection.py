"""Clearing a home: what nobody needs any more is put away, and then gone.

It may be killed at any moment. A folder is renamed before anything in it is removed, so that none
is ever seen in half; what was renamed and not removed goes the next time. Nothing goes that a job
needs: what jobs need is looked at once more, with no job coming in, at the moment a thing goes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from allranks import file_locks
from allranks.agent.data import cache
from allranks.plan.data.retention import Found, Job, Kind, goes, kept, needs
from allranks.server.storage import inventory
from allranks.server.storage.inventory import GOING, LOOKS, Look
from allranks.settings import Home
from allranks.store.files.blobs import Blobs
from allranks.store.records import Records


class Asked(NamedTuple):
    """``older_than`` in seconds; ``jobs``: their records go, too, but for the ``protected``."""

    older_than: float
    dry_run: bool = False
    jobs: bool = False
    protected: Set[str] = frozenset()


class Item(NamedTuple):
    """What went, or would: ``size`` in bytes that are free then."""

    kind: Kind
    name: str
    path: str
    why: str
    size: int
    used_at: float


class Failed(NamedTuple):
    path: str
    message: str


class Report(NamedTuple):
    items: list[Item]
    failed: list[Failed]


class Clearing:
    """One look through a home. ``coming`` is held by whoever takes a job or a model in; ``models``
    tells which files of models have a version; ``rest`` hears of which job the own state went."""

    def __init__(
        self,
        home: Home,
        records: Records,
        coming: Lock,
        asked: Asked,
        models: Callable[[], Set[str]] = frozenset,
        rest: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home, self._records, self._coming, self._asked = home, records, coming, asked
        self._models, self._rest = models, rest
        self._blobs = Blobs(home.blobs)
        self._report = Report([], [])
        # Of jobs that were to go and could not: they stay, and so does what they need.
        self._stay: set[str] = set(asked.protected)
        # In a dry run: those that would be gone by now.
        self._gone: set[str] = set()
        self._trouble: OSError | None = None
        self._seen = -1
        self._jobs: Sequence[Job] = ()
        self._needed: Mapping[Kind, Set[str]] = {}

    def run(self) -> Report:
        """Clear; what could not be done is told and keeps nothing else from being done."""
        self._ask()
        if self._asked.jobs:
            self._clear(inventory.jobs)
            self._ask()
        for look in LOOKS:
            self._clear(look)
        return self._report

    def _ask(self) -> None:
        """What the jobs of the record need, as it is now."""
        self._seen = self._records.created
        rows = [row for row in self._records.uses() if row.name not in self._gone]
        self._jobs = [inventory.job(self._home, row) for row in rows]
        needed = needs(self._jobs, self._parts(), self._models())
        stay = kept(self._jobs, self._stay, self._asked.older_than, time.time())
        self._needed = {**needed, Kind.JOB: stay}

    def _parts(self) -> dict[str, list[str]]:
        """The blobs that the code of each job names. As long as one does not tell, none goes."""
        codes = {job.code for job in self._jobs if job.code is not None}
        try:
            return {each: self._blobs.chunk_digests(each) for each in codes}
        except OSError as error:
            self._trouble = error
            return {}

    def _clear(self, look: Look) -> None:
        for found in self._found(look):
            path = Path(found.path)
            if not goes(found, self._needed, self._asked.older_than, time.time()):
                continue
            try:
                size = inventory.size(path)
                why = self._why(found) if self._asked.dry_run else self._remove(found)
            except FileNotFoundError:
                continue  # another was sooner
            except OSError as error:
                self._fail(error, found.path)
                if found.kind is Kind.JOB:
                    self._stay.add(found.name)
                    self._ask()
                continue
            if why:
                item = Item(found.kind, found.name, found.path, why, size, found.used)
                self._report.items.append(item)

    def _found(self, look: Look) -> Iterator[Found]:
        """What there is; of folders that go whole, not also what lies in them."""
        whole = ""
        if look is inventory.code and self._trouble is not None:
            self._fail(self._trouble, str(self._home.blobs))
            return
        try:
            for found in look(self._home, self._jobs):
                if whole and found.path.startswith(whole):
                    continue
                if goes(found, self._needed, self._asked.older_than, time.time()):
                    whole = found.path + os.sep
                yield found
        except OSError as error:
            self._fail(error, str(error.filename or self._home.root))

    def _why(self, found: Found) -> str:
        """Why it goes, looked at again; empty if it is in use by now."""
        if self._records.created != self._seen or found.kind is Kind.MODEL:
            self._ask()
        if found.kind is Kind.CODE and self._trouble is not None:
            return ""
        with contextlib.suppress(FileNotFoundError):
            if found.looked and inventory.changed(found.looked) > found.used:
                return ""
        why = goes(found, self._needed, self._asked.older_than, time.time())
        if why and found.kind is Kind.JOB and self._asked.dry_run:
            self._gone.add(found.name)
        return why

    def _remove(self, found: Found) -> str:
        """Why it is gone; empty if it is in use by now. Raises OSError."""
        path = Path(found.path)
        if found.kind is Kind.DATA and not path.suffix:
            # Who reads it holds a lock, and who misses it fetches it again.
            why = self._why(found)
            return why if why and cache.remove_if_unused(path) else ""
        with self._coming:
            if not (why := self._why(found)):
                return ""
            if found.kind is Kind.LOG and path.suffix == ".lock":
                return why if _remove_lock(path) else ""
            away = put_away(path)
            if found.kind is Kind.JOB:
                self._records.delete_job(found.name)
            if found.kind is Kind.STATE:
                self._rest(found.name)
        if away is not None:
            remove_folder(away)
        return why

    def _fail(self, error: OSError, path: str) -> None:
        where = str(error.filename or path)
        failed = Failed(where, (error.strerror or str(error)).lower())
        if failed not in self._report.failed:
            self._report.failed.append(failed)


def put_away(path: Path) -> Path | None:
    """Take a thing from its place in one step; the folder that it is now, if it is one."""
    if path.is_dir() and not path.is_symlink():
        if path.name.startswith(GOING):
            return path
        return path.rename(path.with_name(f"{GOING}{secrets.token_hex(8)}"))
    path.unlink(missing_ok=True)
    return None


def _remove_lock(path: Path) -> bool:
    """Remove a lock file that nobody holds."""
    lock = file_locks.take(path)
    if lock is None:
        return False
    try:
        path.unlink()
    finally:
        os.close(lock)
    return True


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it. Raises OSError."""
    try:
        shutil.rmtree(folder)
    except PermissionError:
        # Data that was made read-only with its folders; they are ours all the same.
        for each, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                os.chmod(each, stat.S_IRWXU)
        shutil.rmtree(folder)
