"""Garbage collection: delete unreferenced data of a home.

It may be killed at any moment. A folder is renamed before it is deleted, so that a partial folder
is never visible; the next run deletes renamed folders. Before each deletion the references of jobs
are checked again, under the lock that creating a job needs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from allranks import file_locks, folder_trees
from allranks.agent.data import cache
from allranks.core.data.garbage_rules import Found, Job, Kind, goes, kept, needs
from allranks.errors import AllranksError
from allranks.server.storage import inventory
from allranks.server.storage.inventory import LOOKS, Look
from allranks.settings import Home
from allranks.store.files.blobs import Blobs
from allranks.store.files.trees import GOING
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.server.storage.stored_garbage import StoredUploads


# What assets, models and schedules keep, which are not counted as jobs are.
_KEPT_BY_ASSETS = (Kind.MODEL, Kind.UPLOAD, Kind.STORED)


class Options(NamedTuple):
    """``older_than`` in seconds; with ``jobs`` also job records, except ``protected`` ones. Those
    of replicas whose endpoint is gone go without it."""

    older_than: float
    dry_run: bool = False
    jobs: bool = False
    protected: Set[str] = frozenset()


class Item(NamedTuple):
    """Something deleted, or to be deleted in a dry run; ``size`` is the freed bytes."""

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
    """``recent_jobs``: those that stay only because they ended less than a minute ago, or because
    they still end."""

    items: list[Item]
    failed: list[Failed]
    recent_jobs: Set[str] = frozenset()


class GarbageCollection:
    """One run of garbage collection. ``admission_lock`` is held wherever a job or a model is
    created; ``models`` returns the model files in use, ``codes`` the code of components,
    ``uploads`` the uploads of assets and schedules, ``endpoints`` the names of all; ``rest`` is
    called with each job whose own state was deleted; ``stores`` open the uploads in object stores,
    by the names of these."""

    def __init__(
        self,
        home: Home,
        records: Records,
        admission_lock: Lock,
        options: Options,
        models: Callable[[], Set[str]] = frozenset,
        rest: Callable[[str], None] = lambda _: None,
        codes: Callable[[], Set[str]] = frozenset,
        uploads: Callable[[], Set[str]] = frozenset,
        endpoints: Callable[[], Set[str]] = frozenset,
        stores: Mapping[str, Callable[[], StoredUploads]] = MappingProxyType({}),
    ) -> None:
        self._home, self._records, self._admission_lock, self._options = (
            home,
            records,
            admission_lock,
            options,
        )
        self._models, self._rest, self._codes, self._uploads = models, rest, codes, uploads
        self._stores, self._endpoints = stores, endpoints
        self._blobs = Blobs(home.blobs)
        self._report = Report([], [])
        # Jobs to keep, with what they need: protected ones and those whose deletion failed.
        self._stay: set[str] = set(options.protected)
        # Jobs that a real run would have deleted by now; dry run only.
        self._gone: set[str] = set()
        self._recent: Set[str] = frozenset()
        self._trouble: OSError | None = None
        self._created = -1
        self._jobs: Sequence[Job] = ()
        self._needed: Mapping[Kind, Set[str]] = {}

    def run(self) -> Report:
        """Delete what is unreferenced. Failures are reported, and the run continues."""
        self._load()
        self._clear(inventory.jobs)
        self._load()
        for look in LOOKS:
            self._clear(look)
        for name, opened in self._stores.items():
            try:
                self._clear_store(opened())
            except AllranksError as error:
                where = str(error.where or name)
                self._report.failed.append(Failed(where, f"datastore {name}: {error.message}"))
        return self._report._replace(recent_jobs=self._recent)

    def _clear_store(self, store: StoredUploads) -> None:
        """Raises AllranksError."""
        for upload in store.list(self._jobs):
            entry = upload.found
            if not goes(entry, self._needed, self._options.older_than, time.time()):
                continue
            # Stores may take minutes to answer: never while the lock is held.
            if store.is_used_again(upload):
                continue
            with self._admission_lock:
                why = self._why(entry)
                if why and not self._options.dry_run and not store.begin_removal(upload):
                    why = ""
            if why and not self._options.dry_run:
                store.remove(upload)
            if why:
                item = Item(entry.kind, entry.name, entry.path, why, upload.size, entry.used)
                self._report.items.append(item)

    def _load(self) -> None:
        """Load the jobs of the record and what they need."""
        self._created = self._records.created
        rows = [row for row in self._records.uses() if row.name not in self._gone]
        self._jobs = [inventory.job(self._home, row) for row in rows]
        needed = needs(self._jobs, self._parts(), self._models(), self._uploads())
        older_than, now = self._options.older_than, time.time()
        stay = kept(self._jobs, self._stay, older_than, now)
        recent = stay - kept(self._jobs, self._stay, older_than, now, least=0.0)
        if not self._options.jobs:
            names = self._endpoints()
            of = {row.name: (row.properties or {}).get("allranks.endpoint") for row in rows}
            others = {job for job, of_it in of.items() if of_it is None or of_it in names}
            ending = {job.name for job in self._jobs if job.live and older_than == 0.0}
            stay, recent = stay | others, (recent | ending) - others
        self._needed, self._recent = {**needed, Kind.JOB: stay}, recent

    def _parts(self) -> dict[str, list[str]]:
        """The chunks of the code of jobs and components. If one cannot be read, no code is
        deleted."""
        codes = {code for job in self._jobs for code in job.codes} | self._codes()
        try:
            return {code: self._blobs.chunk_digests(code) for code in codes}
        except OSError as error:
            self._trouble = error
            return {}

    def _clear(self, look: Look) -> None:
        for entry in self._candidates(look):
            path = Path(entry.path)
            if not goes(entry, self._needed, self._options.older_than, time.time()):
                continue
            try:
                size = inventory.size(path)
                why = self._why(entry) if self._options.dry_run else self._remove(entry)
            except FileNotFoundError:
                continue  # deleted concurrently
            except OSError as error:
                self._fail(error, entry.path)
                if entry.kind is Kind.JOB:
                    self._stay.add(entry.name)
                    self._load()
                continue
            if why:
                item = Item(entry.kind, entry.name, entry.path, why, size, entry.used)
                self._report.items.append(item)

    def _candidates(self, look: Look) -> Iterator[Found]:
        """The things of a kind; nothing inside a folder that is deleted as a whole."""
        whole = ""
        if look is inventory.code and self._trouble is not None:
            self._fail(self._trouble, str(self._home.blobs))
            return
        try:
            for entry in look(self._home, self._jobs):
                if whole and entry.path.startswith(whole):
                    continue
                if goes(entry, self._needed, self._options.older_than, time.time()):
                    whole = entry.path + os.sep
                yield entry
        except OSError as error:
            self._fail(error, str(error.filename or self._home.root))

    def _why(self, entry: Found) -> str:
        """Why it is deleted, checked again; empty if it is in use now."""
        if self._records.created != self._created or entry.kind in _KEPT_BY_ASSETS:
            self._load()
        if entry.kind is Kind.CODE and self._trouble is not None:
            return ""
        with contextlib.suppress(FileNotFoundError):
            if entry.looked and inventory.changed(entry.looked) > entry.used:
                return ""
        why = goes(entry, self._needed, self._options.older_than, time.time())
        if why and entry.kind is Kind.JOB and self._options.dry_run:
            self._gone.add(entry.name)
        return why

    def _remove(self, entry: Found) -> str:
        """Delete it and return why; empty if it is in use now. Raises OSError."""
        path = Path(entry.path)
        if entry.kind is Kind.DATA and not path.suffix:
            # Readers hold a lock, and a missing entry is downloaded again.
            why = self._why(entry)
            return why if why and cache.remove_if_unused(path) else ""
        with self._admission_lock:
            if not (why := self._why(entry)):
                return ""
            if entry.kind is Kind.LOG and path.suffix == ".lock":
                return why if _remove_lock(path) else ""
            away = put_away(path)
            if entry.kind is Kind.JOB:
                self._records.delete_job(entry.name)
            if entry.kind is Kind.STATE:
                self._rest(entry.name)
        if away is not None:
            folder_trees.remove(away)
        return why

    def _fail(self, error: OSError, path: str) -> None:
        where = str(error.filename or path)
        failed = Failed(where, (error.strerror or str(error)).lower())
        if failed not in self._report.failed:
            self._report.failed.append(failed)


def put_away(path: Path) -> Path | None:
    """Remove a file, or rename a folder and return its new path, in one step."""
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
