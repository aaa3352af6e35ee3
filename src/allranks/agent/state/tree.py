"""A state's folder on a node: looking at it, reading from it, changing it, and nothing outside.

Each path is walked from the folder's own descriptor, one name at a time, and no link is followed:
whatever a script makes there, nothing elsewhere is read or written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from allranks.agent.data.complete_files import Fingerprint, fingerprint, is_open_for_writing
from allranks.plan.data.state_manifest import Entry, What, is_path, stays_inside

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Seen(NamedTuple):
    """How a thing lay there. Folders have no ``look``, only links a ``target``."""

    what: What
    mode: int = 0
    look: Fingerprint | None = None
    target: str = ""

    @property
    def mtime_ns(self) -> int:
        return self.look.mtime if self.look else 0

    @property
    def ctime_ns(self) -> int:
        return self.look.ctime if self.look else 0


class Sight(NamedTuple):
    """What there is; ``blind``: the folders that could not be looked into, with what the system
    says; ``odd``: what a state cannot keep, and why."""

    seen: dict[str, Seen]
    blind: dict[str, str]
    odd: dict[str, str]

    def is_hidden(self, path: str) -> bool:
        """Whether it may be there, and could not be seen: that is not gone."""
        return any(path.startswith(f"{each}/") for each in self.blind)


class Torn(Exception):
    """It is not what it was, or is being written to."""


class Tree:
    """The folder of the parts of a state at ``root``, once it is made."""

    def __init__(self, root: Path, parts: tuple[str, ...]) -> None:
        self.root, self.parts = root, parts
        self.coming = root / "coming"

    def make(self) -> None:
        """Have its folders here. Raises OSError."""
        for each in (*(self.root / part for part in self.parts), self.coming):
            each.mkdir(parents=True, exist_ok=True)

    def look(self) -> Sight:
        sight = Sight({}, {}, {})
        for part in self.parts:
            self._below(part, sight)
        return sight

    def _below(self, folder: str, sight: Sight) -> None:
        try:
            with os.scandir(self.root / folder) as entries:
                found = sorted(entries, key=lambda each: each.name)
        except FileNotFoundError:
            return
        except OSError as error:
            sight.blind[folder] = error.strerror or str(error)
            return
        for each in found:
            path = f"{folder}/{each.name}"
            try:
                seen = _seen(each)
            except FileNotFoundError:
                continue
            except OSError as error:
                sight.blind[path] = error.strerror or str(error)
                continue
            if why := _odd(path, seen):
                sight.odd[path] = why
                continue
            assert seen is not None
            sight.seen[path] = seen
            if seen.what == "folder":
                self._below(path, sight)

    @contextlib.contextmanager
    def reading(self, path: str, seen: Seen) -> Iterator[BinaryIO]:
        """The file, open. Raises Torn when it is not as it was seen, or is not any more when the
        block ends; OSError when it cannot be read."""
        above, name = self._above(path)
        try:
            opened = os.open(name, _FILE, dir_fd=above)
        except FileNotFoundError:
            raise Torn from None
        finally:
            os.close(above)
        with open(opened, "rb") as file:
            if not _is_as(seen, opened):
                raise Torn
            yield file
            if not _is_as(seen, opened):
                raise Torn

    def is_written(self, path: str) -> bool:
        """Whether somebody has the file open for writing; what cannot be opened is not."""
        with contextlib.suppress(OSError):
            above, name = self._above(path)
            try:
                opened = os.open(name, _FILE, dir_fd=above)
            finally:
                os.close(above)
            try:
                return is_open_for_writing(opened)
            finally:
                os.close(opened)
        return False

    def put(self, path: str, entry: Entry, before: Seen | None, copy: bool = False) -> Seen:
        """Have it lie there as the entry says, a file by renaming what came of it, or a ``copy``.
        Raises Torn when what lies there is not as it was seen ``before``, OSError when it cannot be
        done."""
        above, name = self._above(path, make=True)
        try:
            self._same(above, name, path, before)
            if before is not None and before.what != entry.what:
                _remove(above, name, before)
            if entry.what == "folder":
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=above)
            elif entry.what == "link":
                if not stays_inside(path, entry.target):
                    raise Torn
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=above)
                os.symlink(entry.target, name, dir_fd=above)
            else:
                came = self.coming / entry.sha256
                if copy:
                    came = Path(shutil.copyfile(came, self.coming / "copy"))
                os.chmod(came, entry.mode & 0o777 | 0o600)
                os.utime(came, ns=(entry.mtime_ns, entry.mtime_ns))
                os.rename(came, name, dst_dir_fd=above)
            found = _lies(above, name)
        finally:
            os.close(above)
        if found is None:
            raise Torn
        return found

    def tidy(self, wanted: Iterable[str]) -> None:
        """Have nothing in ``coming`` but what is wanted."""
        for name in {*os.listdir(self.coming)}.difference(wanted):
            (self.coming / name).unlink(missing_ok=True)

    def remove(self, path: str, before: Seen) -> None:
        """Take it away. Raises Torn when it is not as it was seen, OSError when it cannot be."""
        try:
            above, name = self._above(path)
        except FileNotFoundError:
            return
        try:
            self._same(above, name, path, before)
            _remove(above, name, before)
        finally:
            os.close(above)

    def _same(self, above: int, name: str, path: str, before: Seen | None) -> None:
        found = _lies(above, name)
        if found != before or (found and found.look and self.is_written(path)):
            raise Torn

    def _above(self, path: str, make: bool = False) -> tuple[int, str]:
        """A descriptor of the folder it lies in, and its name there."""
        *words, name = path.split("/")
        assert is_path(path)
        at = os.open(self.root, _FOLDER)
        for word in words:
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(word, dir_fd=at)
                below = os.open(word, _FOLDER, dir_fd=at)
            finally:
                os.close(at)
            at = below
        return at, name


def _seen(entry: os.DirEntry[str]) -> Seen | None:
    """None for what is no file, folder or link."""
    status = entry.stat(follow_symlinks=False)
    if entry.is_symlink():
        return Seen("link", look=fingerprint(status), target=os.readlink(entry.path))
    return _of(status)


def _of(status: os.stat_result) -> Seen | None:
    if stat.S_ISDIR(status.st_mode):
        return Seen("folder")
    if stat.S_ISREG(status.st_mode):
        return Seen("file", stat.S_IMODE(status.st_mode) & 0o777, fingerprint(status))
    return None


def _lies(above: int, name: str) -> Seen | None:
    try:
        status = os.lstat(name, dir_fd=above)
        if stat.S_ISLNK(status.st_mode):
            return Seen("link", 0, fingerprint(status), os.readlink(name, dir_fd=above))
    except FileNotFoundError:
        return None
    return _of(status)


def _odd(path: str, seen: Seen | None) -> str:
    if seen is None:
        return "is no file, folder or link"
    if not is_path(path):
        return "has too long a path"
    if seen.what == "link" and not stays_inside(path, seen.target):
        return "is a link that leads out of the state"
    return ""


def _remove(above: int, name: str, before: Seen) -> None:
    with contextlib.suppress(FileNotFoundError):
        if before.what == "folder":
            os.rmdir(name, dir_fd=above)
        else:
            os.unlink(name, dir_fd=above)


def _is_as(seen: Seen, file: int) -> bool:
    status = os.fstat(file)
    return stat.S_ISREG(status.st_mode) and fingerprint(status) == seen.look
