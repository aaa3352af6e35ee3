"""State folders in the home: contents by hash, a manifest of the current files, and versions of it.

``FOLDER/content/SHA256`` is a file's content, read-only; ``FOLDER/coming/`` has partial uploads.
``FOLDER/head`` is the current manifest, ``FOLDER/versions/N`` are older ones. A manifest begins
with the hash of the rest, and is replaced atomically after its contents are written. So a kill at
any time leaves an intact manifest.
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

from allranks.core.data import state_manifest as manifests
from allranks.core.data import state_versions
from allranks.core.data.state_manifest import Entries, Entry
from allranks.errors import Conflict, MissingCode, NotFound, UsageError
from allranks.store.files.receiver import Receiver

_DIGEST = re.compile(r"[0-9a-f]{64}")
# Folders of named states, and of jobs' own states.
NAMED, OF_JOBS = "named", "of-jobs"
HEAD, CONTENT, INCOMING, VERSIONS = "head", "content", "coming", "versions"


class Version(NamedTuple):
    """A stored manifest: of which job's attempt, and ``why``; ``at`` in Unix seconds; ``revision``
    of the state at that time. ``torn``: files of it that are not complete, because their writer
    was killed."""

    number: int
    at: float
    job: str
    attempt: int
    why: str
    revision: int
    entries: dict[str, Entry]
    torn: Sequence[str] = ()

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries.values())

    @property
    def files(self) -> int:
        return sum(entry.what == "file" for entry in self.entries.values())


class Put(NamedTuple):
    """A node's change of a path; None deletes it. ``base``: the entry's number that it is based
    on."""

    path: str
    base: int
    entry: Entry | None


class Commit(NamedTuple):
    """The result of a commit: the revisions ``before`` and ``after``; ``done``: the new number of
    each changed path, 0 for deleted ones; all ``entries``."""

    before: int
    after: int
    done: dict[str, int]
    entries: Entries


class _Contents(NamedTuple):
    """Where the contents of a state are, see ``incoming.Place``."""

    folder: Path

    def name(self, digest: str) -> str:
        return f"{self.folder}/{CONTENT}/{_checked(digest)}"

    def part(self, digest: str, number: str = "") -> Path:
        return Path(f"{self.folder}/{INCOMING}/{_checked(digest)}{number and f'.{number}'}")


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise UsageError(f"{digest!r} is not a SHA-256", hint="it has 64 hexadecimal digits")
    return digest


class State:
    """A state folder. Thread-safe; used by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._revision = 0
        self._entries: dict[str, Entry] | None = None
        self._versions: list[Version] | None = None
        self._contents = _Contents(folder)
        # Made when something comes: most states of a server get nothing.
        self._incoming: Receiver | None = None

    @property
    def revision(self) -> int:
        """Counts changes; 0 for a state that never had any."""
        with self._lock:
            self._read()
            return self._revision

    def entries(self) -> Entries:
        """The current files by path."""
        with self._lock:
            return dict(self._read())

    # ------------------------------------------------------------ contents

    def content(self, sha256: str) -> Path:
        """The path of a content. Raises UsageError for an invalid hash."""
        return Path(self._contents.name(sha256))

    @property
    def incoming(self) -> Receiver:
        """What arrives of contents."""
        with self._lock:
            self._incoming = self._incoming or Receiver(self._contents)
            return self._incoming

    def receive(self, sha256: str, offset: int, size: int, data: bytes | memoryview) -> int:
        """Add a piece of a content of ``size`` bytes. Returns the bytes received, from which the
        sender continues. Raises UsageError if the complete content does not match its hash."""
        incoming = self.incoming
        try:
            with contextlib.suppress(Conflict):  # it goes on elsewhere
                incoming.write(sha256, offset, data, size, holes=False)
        except OSError:
            incoming.discard(sha256)  # what a full disk has taken of it
            raise
        have = incoming.size(sha256)
        if have is not None and have > size:
            incoming.discard(sha256)
            raise UsageError(f"content does not match {sha256}", hint="upload it again")
        return size if have is None else have

    # ------------------------------------------------------------ the manifest

    def commit(self, puts: Sequence[Put]) -> Commit:
        """Apply changes atomically. Skips paths that have changed since the node's ``base``, and
        those that would be below a file. Raises MissingCode if a content is missing."""
        with self._lock:
            entries = dict(self._read())
            done = dict[str, int]()
            before = number = self._revision
            above = {folder for path in entries for folder in manifests.above(path)}
            for path, base, entry in puts:
                was = entries.get(path)
                if (was.seq if was else 0) != base:
                    continue
                if entry is None:
                    done[path] = 0
                    entries.pop(path, None)
                    continue
                above_it = manifests.above(path)
                if not all(manifests.is_folder(entries.get(folder)) for folder in above_it):
                    continue
                if path in above and entry.what != "folder":
                    continue
                above.update(manifests.above(path))
                if entry.what == "file" and not self.content(entry.sha256).exists():
                    raise MissingCode(f"the content of {path!r} is missing", hint="upload it first")
                number += 1
                done[path] = number
                entries[path] = entry._replace(seq=number)
            if done:
                self._write(entries, number + 1)
            return Commit(before, self._revision, done, entries)

    def has_changes(self) -> bool:
        """Whether the current files differ from the newest version."""
        with self._lock:
            entries = self._read()
            newest = self.newest()
            if newest is None or (newest.revision == self._revision and not newest.torn):
                return newest is None and bool(entries)
            return not _equal(newest.entries, entries)

    def keep(self, job: str, attempt: int, why: str) -> Version | None:
        """Make a version of the current files, unless the newest is the same."""
        with self._lock:
            if not self.has_changes():
                return None
            entries = self._read()
            newest = self.newest()
            number = newest.number + 1 if newest is not None else 1
            version = Version(number, time.time(), job, attempt, why, self._revision, entries)
            self._add_version(version)
        return version

    def keep_torn(self, job: str, attempt: int, puts: Sequence[Put]) -> Version:
        """Make a version of the current files with incomplete ones in their places; one for all
        nodes of an attempt. Raises MissingCode if a content is missing."""
        with self._lock:
            entries = dict(self._read())
            newest = self.newest()
            number = newest.number + 1 if newest is not None else 1
            torn = {path: entry for path, _, entry in puts if entry is not None}
            if newest is not None and newest.torn and newest[2:4] == (job, attempt):
                number = newest.number
                torn = {path: newest.entries[path] for path in newest.torn} | torn
            for path, entry in torn.items():
                if not self.content(entry.sha256).exists():
                    raise MissingCode(f"the content of {path!r} is missing", hint="upload it first")
            names = ", ".join(path.partition("/")[2] for path in sorted(torn))
            why = f"a rank was killed while it wrote {names}"
            version = Version(
                number, time.time(), job, attempt, why, self._revision, entries | torn, sorted(torn)
            )
            self._add_version(version)
        return version

    def _add_version(self, version: Version) -> None:
        path = self.folder / VERSIONS / str(version.number)
        path.parent.mkdir(exist_ok=True)
        _write_manifest(path, {**version._asdict(), "entries": manifests.pack(version.entries)})
        others = [other for other in self.versions() if other.number != version.number]
        self._versions = [*others, version]
        self._delete_versions(state_versions.spare(each.number for each in self._versions))

    def version(self, number: int) -> Version:
        """The version of that number. Raises NotFound, also if its manifest is damaged."""
        for version in self.versions():
            if version.number == number:
                return version
        existing = ", ".join(str(version.number) for version in self.versions()) or "none"
        hint = f"existing versions: {existing}"
        raise NotFound(f"version {number} of this state not found", hint=hint)

    def versions(self) -> list[Version]:
        """All versions with an intact manifest, oldest first."""
        with self._lock:
            if self._versions is None:
                names: list[str] = []
                with contextlib.suppress(FileNotFoundError):
                    names = os.listdir(self.folder / VERSIONS)
                numbers = sorted(int(name) for name in names if name.isdecimal())
                stored = (
                    _read_manifest(self.folder / VERSIONS / str(number)) for number in numbers
                )
                self._versions = [
                    Version(**{**manifest, "entries": manifests.load(manifest["entries"])})
                    for manifest in stored
                    if manifest is not None
                ]
            return self._versions

    def newest(self) -> Version | None:
        versions = self.versions()
        return versions[-1] if versions else None

    def unload(self) -> None:
        """Free memory; everything is read from disk again when needed."""
        with self._lock:
            self._entries = self._versions = None
            if self._incoming is not None:
                self._incoming.close()

    def delete(self) -> None:
        """Delete the state with all versions, atomically."""
        with self._lock:
            trash = self.folder.with_name(f".going-{secrets.token_hex(8)}")
            with contextlib.suppress(FileNotFoundError):
                self.folder.rename(trash)
            self.unload()
        shutil.rmtree(trash, ignore_errors=True)

    def restore(self, number: int) -> None:
        """Make the files of a version current. Raises NotFound."""
        with self._lock:
            entries = self.version(number).entries
            self._read()
            self._write(_renumbered(entries, self._revision), self._revision + len(entries) + 1)

    def fall_back(self, sha256: str) -> Version | None:
        """Delete a damaged content and restore the newest version with all its contents. Returns
        that version, or None if there is none. Raises NotFound if the content is intact."""
        path = self.content(sha256)
        if matches(path, sha256):
            raise NotFound("the content is not damaged", hint="download it again")
        with self._lock:
            path.unlink(missing_ok=True)
            for version in reversed(self.versions()):
                shas = _contents(version.entries)
                if not version.torn and all(self.content(sha256).exists() for sha256 in shas):
                    self.restore(version.number)
                    return version
        return None

    # ------------------------------------------------------------ inside

    def _read(self) -> dict[str, Entry]:
        if self._entries is None:
            head = _read_manifest(self.folder / HEAD)
            if head is None and (self.folder / HEAD).exists():
                # The manifest is damaged: use the newest intact version.
                newest = next(
                    (version for version in reversed(self.versions()) if not version.torn), None
                )
                head = newest and {**newest._asdict(), "entries": manifests.pack(newest.entries)}
            self._revision = int(head["revision"]) if head else 0
            self._entries = manifests.load(head["entries"]) if head else {}
            if head:
                self._delete_unused(self._old_contents())
        return self._entries

    def _write(self, entries: dict[str, Entry], revision: int) -> None:
        before = self._read()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_manifest(
            self.folder / HEAD, {"revision": revision, "entries": manifests.pack(entries)}
        )
        self._entries, self._revision = entries, revision
        if removed := _contents(before) - _contents(entries):
            self._delete_unused(removed)

    def _delete_versions(self, numbers: Iterable[int]) -> None:
        removed: set[str] = set()
        for version in [self.version(number) for number in numbers]:
            (self.folder / VERSIONS / str(version.number)).unlink(missing_ok=True)
            self._versions = [other for other in self.versions() if other is not version]
            removed |= _contents(version.entries)
        if removed:
            self._delete_unused(removed)

    def _old_contents(self) -> set[str]:
        """Contents older than an hour. They may be unused: an agent or the server was killed."""
        before = time.time() - 3600
        names = set[str]()
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder / CONTENT) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < before:
                        names.add(entry.name)
        return names

    def _delete_unused(self, candidates: Set[str]) -> None:
        """Delete those contents that no manifest refers to."""
        used = _contents(self._read())
        for version in self.versions():
            used |= _contents(version.entries)
        for sha256 in candidates - used:
            with contextlib.suppress(FileNotFoundError):
                self.content(sha256).unlink()


def matches(path: Path, sha256: str) -> bool:
    """Whether a file has that SHA-256; False if it does not exist."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def seed(folder: Path, of: State) -> None:
    """Create a state as a copy of another's current files, sharing contents by hard links."""
    entries = of.entries()
    if not entries:
        return
    temporary = folder.with_name(f".coming-{secrets.token_hex(8)}")
    (temporary / CONTENT).mkdir(parents=True, mode=0o700)
    for sha256 in _contents(entries):
        os.link(of.content(sha256), temporary / CONTENT / sha256)
    head = {"revision": len(entries) + 1, "entries": manifests.pack(_renumbered(entries, 0))}
    _write_manifest(temporary / HEAD, head)
    temporary.rename(folder)


def _contents(entries: Entries) -> set[str]:
    return {entry.sha256 for entry in entries.values() if entry.what == "file"}


def _equal(one: Entries, other: Entries) -> bool:
    return one.keys() == other.keys() and all(one[p].is_as(other[p]) for p in one)


def _renumbered(entries: Entries, after: int) -> dict[str, Entry]:
    """The entries in the same order, numbered from ``after`` + 1."""
    ordered = sorted(entries.items(), key=lambda item: item[1].seq)
    return {path: e._replace(seq=after + n) for n, (path, e) in enumerate(ordered, 1)}


def _write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    text = json.dumps(manifest).encode()
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    temporary.replace(path)


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Read a manifest; None if it is missing or damaged."""
    try:
        digest, _, text = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    manifest: dict[str, Any] = json.loads(text)
    return manifest
