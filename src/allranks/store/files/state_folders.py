"""State folders as the home keeps them: contents by their hash, a manifest of what is there now,
and numbered versions of it.

``FOLDER/content/SHA256`` is a file's content, read-only; ``FOLDER/coming/`` what has come of some.
``FOLDER/head`` is the manifest, ``FOLDER/versions/N`` are earlier ones. A manifest begins with the
hash of the rest and is replaced in one step, after all that it names: whoever is killed, and when,
leaves the one before, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from allranks.errors import MissingCode, NotFound, UsageError
from allranks.plan.data import state_manifest as manifests
from allranks.plan.data.state_manifest import Entries, Entry

_DIGEST = re.compile(r"[0-9a-f]{64}")
# Of a home's states: those with a name, and those that are a job's own, by the job's.
NAMED, OF_JOBS = "named", "of-jobs"
HEAD, CONTENT, COMING, VERSIONS = "head", "content", "coming", "versions"


class Version(NamedTuple):
    """A manifest that was kept: of which attempt of which job, and ``why``; ``at`` in seconds since
    the epoch, ``revision`` that of the state then."""

    number: int
    at: float
    job: str
    attempt: int
    why: str
    revision: int
    entries: dict[str, Entry]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.entries.values())

    @property
    def files(self) -> int:
        return sum(each.what == "file" for each in self.entries.values())


class Put(NamedTuple):
    """What a node has for a path, None: nothing any more; ``base`` is what it took its own for."""

    path: str
    base: int
    entry: Entry | None


class Done(NamedTuple):
    """What became of a commit: the revisions ``before`` and ``after`` it, for each path that was
    changed its number, 0 for one that is gone; and all ``entries`` that there are."""

    before: int
    after: int
    done: dict[str, int]
    entries: Entries


class _Coming(NamedTuple):
    lock: threading.Lock
    hash: Any
    sizes: list[int]


class State:
    """One state folder. Safe to use from several threads, by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._revision = 0
        self._entries: dict[str, Entry] | None = None
        self._versions: list[Version] | None = None
        self._coming: dict[str, _Coming] = {}

    @property
    def revision(self) -> int:
        """Counts what has come; 0: nothing ever has."""
        with self._lock:
            self._read()
            return self._revision

    def entries(self) -> Entries:
        """What is there now, by path."""
        with self._lock:
            return dict(self._read())

    # ------------------------------------------------------------ contents

    def content(self, sha256: str) -> Path:
        """Where it lies. Raises UsageError for what is no hash."""
        return self._below(CONTENT, sha256)

    def have(self, sha256: str) -> int | None:
        """How much of a content is here; None: all of it."""
        if self.content(sha256).exists():
            return None
        with contextlib.suppress(FileNotFoundError):
            return self._below(COMING, sha256).stat().st_size
        return 0

    def take(self, sha256: str, offset: int, size: int, data: bytes) -> int:
        """Take a piece of a content of ``size`` bytes; how much of it is here then, which the
        sender goes on from. Raises UsageError when all that came is not what its name says."""
        goal = self.content(sha256)
        while not goal.exists():
            with self._lock:
                fresh = _Coming(threading.Lock(), hashlib.sha256(), [0])
                coming = self._coming.setdefault(sha256, fresh)
            with coming.lock:
                # Whoever had the lock before may have brought all of it, or thrown it away.
                if self._coming.get(sha256) is coming:
                    return self._add(coming, sha256, offset, size, data)
        return size

    def _add(self, coming: _Coming, sha256: str, offset: int, size: int, data: bytes) -> int:
        path, goal = self._below(COMING, sha256), self.content(sha256)
        if not coming.sizes[0]:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch()
            with path.open("rb") as file:  # of one who was killed in the middle of it
                while piece := file.read(1 << 20):
                    coming.hash.update(piece)
                    coming.sizes[0] += len(piece)
        if offset != coming.sizes[0]:
            return coming.sizes[0]
        try:
            with path.open("r+b") as file:
                file.seek(offset)
                file.write(data)
        except OSError:
            # What a full disk took of it would be in the way of everybody.
            path.unlink(missing_ok=True)
            self._coming.pop(sha256, None)
            raise
        coming.hash.update(data)
        coming.sizes[0] += len(data)
        if coming.sizes[0] < size:
            return coming.sizes[0]
        try:
            if coming.sizes[0] != size or coming.hash.hexdigest() != sha256:
                path.unlink()
                raise UsageError(f"what was sent is not {sha256}", hint="send it again")
            path.chmod(0o444)
            goal.parent.mkdir(exist_ok=True)
            path.rename(goal)
        finally:
            self._coming.pop(sha256, None)
        return size

    # ------------------------------------------------------------ the manifest

    def commit(self, puts: Sequence[Put]) -> Done:
        """Change all of these paths in one step, but for those that are not as the node took them
        for, or would lie below a file. Raises MissingCode when a content is not here."""
        with self._lock:
            entries, done = dict(self._read()), dict[str, int]()
            before = number = self._revision
            above = {each for path in entries for each in manifests.above(path)}
            for path, base, entry in puts:
                was = entries.get(path)
                if (was.seq if was else 0) != base:
                    continue
                if entry is None:
                    done[path] = 0
                    entries.pop(path, None)
                    continue
                above_it = manifests.above(path)
                if not all(manifests.is_folder(entries.get(each)) for each in above_it):
                    continue
                if path in above and entry.what != "folder":
                    continue
                above.update(manifests.above(path))
                if entry.what == "file" and not self.content(entry.sha256).exists():
                    raise MissingCode(f"the content of {path!r} is not here", hint="send it first")
                number += 1
                done[path] = number
                entries[path] = entry._replace(seq=number)
            if done:
                self._write(entries, number + 1)
            return Done(before, self._revision, done, entries)

    def is_new(self) -> bool:
        """Whether what is there now is not yet a version."""
        with self._lock:
            entries, newest = self._read(), self.newest()
            if newest is None or newest.revision == self._revision:
                return newest is None and bool(entries)
            return not _alike(newest.entries, entries)

    def keep(self, job: str, attempt: int, why: str) -> Version | None:
        """Make a version of what is there now, unless the newest is the same."""
        with self._lock:
            if not self.is_new():
                return None
            entries, newest = self._read(), self.newest()
            number = newest.number + 1 if newest is not None else 1
            version = Version(number, time.time(), job, attempt, why, self._revision, entries)
            told = {**version._asdict(), "entries": manifests.pack(entries)}
            path = self.folder / VERSIONS / str(number)
            path.parent.mkdir(exist_ok=True)
            _replace(path, told)
            self._versions = [*self.versions(), version]
            self._let_go(manifests.spare(each.number for each in self._versions))
        return version

    def version(self, number: int) -> Version:
        """Raises NotFound for one that is not kept, or whose manifest is damaged."""
        for each in self.versions():
            if each.number == number:
                return each
        kept = ", ".join(str(each.number) for each in self.versions()) or "none"
        raise NotFound(
            f"there is no version {number} of this state", hint=f"versions that there are: {kept}"
        )

    def versions(self) -> list[Version]:
        """Those that are whole, the oldest first."""
        with self._lock:
            if self._versions is None:
                names: list[str] = []
                with contextlib.suppress(FileNotFoundError):
                    names = os.listdir(self.folder / VERSIONS)
                numbers = sorted(int(name) for name in names if name.isdecimal())
                told = (_told(self.folder / VERSIONS / str(each)) for each in numbers)
                self._versions = [
                    Version(**{**each, "entries": manifests.load(each["entries"])})
                    for each in told
                    if each is not None
                ]
            return self._versions

    def newest(self) -> Version | None:
        found = self.versions()
        return found[-1] if found else None

    def rest(self) -> None:
        """Nothing of it is needed for a while: forget what is on the disk."""
        with self._lock:
            self._entries = self._versions = None
            self._coming.clear()

    def delete(self) -> None:
        """Take it away with all of its versions, in one step."""
        with self._lock:
            away = self.folder.with_name(f".going-{secrets.token_hex(8)}")
            with contextlib.suppress(FileNotFoundError):
                self.folder.rename(away)
            self.rest()
        shutil.rmtree(away, ignore_errors=True)

    def restore(self, number: int) -> None:
        """Have what is there be what it was in that version. Raises NotFound."""
        with self._lock:
            entries = self.version(number).entries
            self._read()
            self._write(_numbered(entries, self._revision), self._revision + len(entries) + 1)

    def step_back(self, sha256: str) -> Version | None:
        """Where that content is damaged here: have what was before, the newest version that has all
        of its contents; None when there is none. Raises NotFound for a content that is whole."""
        path = self.content(sha256)
        if is_whole(path, sha256):
            raise NotFound("that content is whole", hint="fetch it again")
        with self._lock:
            path.unlink(missing_ok=True)
            for version in reversed(self.versions()):
                shas = _contents(version.entries)
                if all(self.content(each).exists() for each in shas):
                    self.restore(version.number)
                    return version
        return None

    # ------------------------------------------------------------ inside

    def _below(self, kind: str, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise UsageError(f"{sha256!r} is no SHA-256", hint="64 hexadecimal digits")
        return self.folder / kind / sha256

    def _read(self) -> dict[str, Entry]:
        if self._entries is None:
            told = _told(self.folder / HEAD)
            if told is None and (self.folder / HEAD).exists():
                newest = self.newest()  # it is damaged; the newest that is not holds
                told = newest and {**newest._asdict(), "entries": manifests.pack(newest.entries)}
            self._revision = int(told["revision"]) if told else 0
            self._entries = manifests.load(told["entries"]) if told else {}
            if told:
                self._sweep(self._old())
        return self._entries

    def _write(self, entries: dict[str, Entry], revision: int) -> None:
        before = self._read()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(self.folder / HEAD, {"revision": revision, "entries": manifests.pack(entries)})
        self._entries, self._revision = entries, revision
        if went := _contents(before) - _contents(entries):
            self._sweep(went)

    def _let_go(self, numbers: Iterable[int]) -> None:
        went: set[str] = set()
        for each in [self.version(number) for number in numbers]:
            (self.folder / VERSIONS / str(each.number)).unlink(missing_ok=True)
            self._versions = [other for other in self.versions() if other is not each]
            went |= _contents(each.entries)
        if went:
            self._sweep(went)

    def _old(self) -> set[str]:
        """Contents that have not come just now: who had sent them may have been killed before they
        were named, or we were before they were removed."""
        before, found = time.time() - 3600, set[str]()
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder / CONTENT) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < before:
                        found.add(entry.name)
        return found

    def _sweep(self, went: Set[str]) -> None:
        """Remove those of the contents that nothing names any more."""
        used = _contents(self._read())
        for version in self.versions():
            used |= _contents(version.entries)
        for sha256 in went - used:
            with contextlib.suppress(FileNotFoundError):
                self.content(sha256).unlink()


def is_whole(path: Path, sha256: str) -> bool:
    """Whether a content is what its name says."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def seed(folder: Path, of: State) -> None:
    """Make a state that begins as another is now, and shares its contents on the disk."""
    entries = of.entries()
    if not entries:
        return
    beside = folder.with_name(f".coming-{secrets.token_hex(8)}")
    (beside / CONTENT).mkdir(parents=True, mode=0o700)
    for sha256 in _contents(entries):
        os.link(of.content(sha256), beside / CONTENT / sha256)
    told = {"revision": len(entries) + 1, "entries": manifests.pack(_numbered(entries, 0))}
    _replace(beside / HEAD, told)
    beside.rename(folder)


def _contents(entries: Entries) -> set[str]:
    return {each.sha256 for each in entries.values() if each.what == "file"}


def _alike(one: Entries, other: Entries) -> bool:
    return one.keys() == other.keys() and all(one[p].is_as(other[p]) for p in one)


def _numbered(entries: Entries, after: int) -> dict[str, Entry]:
    """The same in the same order, as if they came only now."""
    ordered = sorted(entries.items(), key=lambda each: each[1].seq)
    return {path: e._replace(seq=after + n) for n, (path, e) in enumerate(ordered, 1)}


def _replace(path: Path, told: Mapping[str, Any]) -> None:
    text = json.dumps(told).encode()
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    beside.replace(path)


def _told(path: Path) -> dict[str, Any] | None:
    """What a manifest says; None for one that is not there, or not what its writer wrote."""
    try:
        digest, _, text = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    told: dict[str, Any] = json.loads(text)
    return told
