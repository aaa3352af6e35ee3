"""Scan, read and change a state folder, and nothing outside it.

Each path is opened from the folder's descriptor, one name at a time, without following links, so
that nothing a script creates there leads elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from allranks import folder_trees
from allranks.agent.data.complete_files import Fingerprint, fingerprint, is_open_for_writing
from allranks.core.data.state_manifest import Entry, What, is_path, stays_inside

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileState(NamedTuple):
    """A file, folder or link as last seen. Of a folder the ``fingerprint`` has the time alone; only
    links have a ``target``."""

    what: What
    mode: int = 0
    fingerprint: Fingerprint | None = None
    target: str = ""

    @property
    def size(self) -> int:
        return self.fingerprint.size if self.fingerprint else 0

    @property
    def mtime_ns(self) -> int:
        return self.fingerprint.mtime if self.fingerprint else 0

    @property
    def ctime_ns(self) -> int:
        return self.fingerprint.ctime if self.fingerprint else 0


class Scan(NamedTuple):
    """The contents of a state folder by path. ``unreadable``: folders that could not be read, with
    the error; ``unsupported``: entries that a state cannot hold, with the reason."""

    files: dict[str, FileState]
    unreadable: dict[str, str]
    unsupported: dict[str, str]

    def is_hidden(self, path: str) -> bool:
        """Whether the path is below an unreadable folder, so that it may still exist."""
        return any(path.startswith(f"{folder}/") for folder in self.unreadable)


class ChangedMeanwhile(Exception):
    """The file changed since it was seen, or is being written to."""


class Tree:
    """A state folder at ``root`` with the top-level folders ``parts``."""

    def __init__(self, root: Path, parts: tuple[str, ...]) -> None:
        self.root, self.parts = root, parts
        self.downloads = root / "coming"

    def make(self) -> None:
        """Create the folders. Raises OSError."""
        for folder in (*(self.root / part for part in self.parts), self.downloads):
            folder.mkdir(parents=True, exist_ok=True)

    def scan(self) -> Scan:
        scan = Scan({}, {}, {})
        for part in self.parts:
            self._scan_folder(part, scan)
        return scan

    def _scan_folder(self, folder: str, scan: Scan) -> None:
        """Scan a folder and all below."""
        pending = [folder]
        while pending:
            pending += self._scan_level(pending.pop(), scan)

    def _scan_level(self, folder: str, scan: Scan) -> list[str]:
        """Scan one folder. Return the paths of those in it."""
        below: list[str] = []
        try:
            with os.scandir(self.root / folder) as iterator:
                entries = sorted(iterator, key=lambda entry: entry.name)
        except FileNotFoundError:
            return below
        except OSError as error:
            scan.unreadable[folder] = error.strerror or str(error)
            return below
        for entry in entries:
            path = f"{folder}/{entry.name}"
            try:
                state = _read_entry(entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                scan.unreadable[path] = error.strerror or str(error)
                continue
            if why := _unsupported_reason(path, state):
                scan.unsupported[path] = why
                continue
            assert state is not None
            scan.files[path] = state
            if state.what == "folder":
                below.append(path)
        return below

    @contextlib.contextmanager
    def reading(self, path: str, state: FileState) -> Iterator[BinaryIO]:
        """Open a file for reading. Raises ChangedMeanwhile if it differs from ``state`` at the
        start or end of the block, and OSError."""
        above, name = folder_trees.open_parent(self.root, path)
        try:
            opened = os.open(name, _FILE_FLAGS, dir_fd=above)
        except FileNotFoundError:
            raise ChangedMeanwhile from None
        finally:
            os.close(above)
        with open(opened, "rb") as file:
            if not _matches(state, opened):
                raise ChangedMeanwhile
            yield file
            if not _matches(state, opened):
                raise ChangedMeanwhile

    def is_open(self, path: str) -> bool:
        """Whether a process has the file open for writing; False if it cannot be opened."""
        with contextlib.suppress(OSError):
            above, name = folder_trees.open_parent(self.root, path)
            try:
                opened = os.open(name, _FILE_FLAGS, dir_fd=above)
            finally:
                os.close(above)
            try:
                return is_open_for_writing(opened)
            finally:
                os.close(opened)
        return False

    def put(
        self, path: str, entry: Entry, before: FileState | None, copy: bool = False
    ) -> FileState:
        """Create or replace a path as its entry says; a file by renaming its download, or a
        ``copy`` of it. Raises ChangedMeanwhile if the path is not as it was ``before``, and
        OSError."""
        above, name = folder_trees.open_parent(self.root, path, make=True)
        try:
            self._check_unchanged(above, name, path, before)
            file = self._file(entry, copy) if entry.what == "file" else None
            with folder_trees.same_time(folder_trees.by_descriptor(above)):
                _put(above, name, path, entry, before, file)
            result = _read_path(above, name)
        finally:
            os.close(above)
        if result is None:
            raise ChangedMeanwhile
        return result

    def _file(self, entry: Entry, copy: bool) -> Path:
        """The download of a file, or a copy, with its mode and time."""
        download = self.downloads / entry.sha256
        if copy:
            download = Path(shutil.copyfile(download, self.downloads / "copy"))
        os.chmod(download, entry.mode & 0o777 | 0o600)
        os.utime(download, ns=(entry.mtime_ns, entry.mtime_ns))
        return download

    def clean_downloads(self, needed: Iterable[str]) -> None:
        """Delete downloads that are not ``needed``."""
        for name in {*os.listdir(self.downloads)}.difference(needed):
            (self.downloads / name).unlink(missing_ok=True)

    def remove(self, path: str, before: FileState) -> None:
        """Delete a path. Raises ChangedMeanwhile if it is not as it was ``before``, but for a
        folder's time, and OSError."""
        try:
            above, name = folder_trees.open_parent(self.root, path)
        except FileNotFoundError:
            return
        try:
            if before.what != "folder":
                self._check_unchanged(above, name, path, before)
            with folder_trees.same_time(folder_trees.by_descriptor(above)):
                _remove(above, name, before)
        finally:
            os.close(above)

    def _check_unchanged(self, above: int, name: str, path: str, before: FileState | None) -> None:
        current = _read_path(above, name)
        if current != before or (current and current.what == "file" and self.is_open(path)):
            raise ChangedMeanwhile


def _read_entry(entry: os.DirEntry[str]) -> FileState | None:
    """The entry's state, or None if it is not a file, folder or link."""
    status = entry.stat(follow_symlinks=False)
    if entry.is_symlink():
        return FileState("link", fingerprint=fingerprint(status), target=os.readlink(entry.path))
    return _from_status(status)


def _from_status(status: os.stat_result) -> FileState | None:
    if stat.S_ISDIR(status.st_mode):
        return FileState("folder", fingerprint=Fingerprint(0, status.st_mtime_ns, 0, 0))
    if stat.S_ISREG(status.st_mode):
        return FileState("file", stat.S_IMODE(status.st_mode) & 0o777, fingerprint(status))
    return None


def _read_path(above: int, name: str) -> FileState | None:
    try:
        status = os.lstat(name, dir_fd=above)
        if stat.S_ISLNK(status.st_mode):
            return FileState("link", 0, fingerprint(status), os.readlink(name, dir_fd=above))
    except FileNotFoundError:
        return None
    return _from_status(status)


def _unsupported_reason(path: str, state: FileState | None) -> str:
    if state is None:
        return "is not a file, folder or link"
    if not is_path(path):
        return "has too long a path"
    if state.what == "link" and not stays_inside(path, state.target):
        return "is a link that leads outside the state folder"
    return ""


def _put(
    above: int, name: str, path: str, entry: Entry, before: FileState | None, file: Path | None
) -> None:
    """Put a ``file`` there, or the folder or link of the entry."""
    if before is not None and before.what != entry.what:
        _remove(above, name, before)
    if file is not None:
        os.rename(file, name, dst_dir_fd=above)
        return
    if entry.what == "folder":
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
    else:
        if not stays_inside(path, entry.target):
            raise ChangedMeanwhile
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=above)
        os.symlink(entry.target, name, dir_fd=above)
    if entry.mtime_ns:  # 0.1.0 does not keep that of a folder
        os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=above, follow_symlinks=False)


def _remove(above: int, name: str, before: FileState) -> None:
    with contextlib.suppress(FileNotFoundError):
        if before.what == "folder":
            os.rmdir(name, dir_fd=above)
        else:
            os.unlink(name, dir_fd=above)


def _matches(state: FileState, file: int) -> bool:
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and fingerprint(status) == state.fingerprint
