"""Extract entries into a folder, and never outside it.

Each path is opened from the folder's descriptor, one name at a time, without following links, so
neither earlier entries nor concurrent processes can redirect it. A link's target may contain `..`
only at its start. It starts from a real folder and meets only files, folders and links that obey
the same rule, so no link ends outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from allranks.disk_space import is_hole
from allranks.errors import AllranksError
from allranks.tars import CHUNK, Entry

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# Linux opens no longer paths; deeper trees are hard to delete.
_MAX_PATH, _MAX_DEPTH = 4000, 200
# Attempts to create a name that another archive creates in the same folder at the same time.
_ATTEMPTS = 8

T = TypeVar("T")


class Extraction:
    """Extracts one archive to a folder. Sets no owner, set-uid, set-gid or sticky bit, and always
    gives our user full access."""

    def __init__(
        self,
        archive: Path,
        folder: Path,
        wrote: Callable[[int], None] = lambda count: None,
        *,
        as_it_was: bool = False,
    ) -> None:
        """``wrote`` is called with the size of each chunk written, and may raise. ``as_it_was``:
        links may lead anywhere (nothing is written through them), and paths be of any depth."""
        self._archive, self._wrote, self._as_it_was = archive, wrote, as_it_was
        self._before = os.umask(0o077)
        self._mask = self._before & 0o077
        os.umask(self._mask)
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._last: tuple[tuple[str, ...], int] = (), self._root
        # Of the folders, to set once all is in them.
        self._times: dict[tuple[str, ...], float] = {}

    def close(self) -> None:
        for parts, mtime in self._times.items():
            # An invalid time, or something else lies there by now.
            with contextlib.suppress(AllranksError, OSError, OverflowError, ValueError):
                os.utime(self._open("", parts), (mtime, mtime))
        self._close_last()
        os.close(self._root)
        os.umask(self._before)

    def put(self, entry: Entry) -> None:
        """Extract an entry. Raises AllranksError if it is refused, and OSError."""
        if entry.kind == "other":
            raise self.refusal(entry.name, "is neither a file, a folder nor a link")
        parts = self._parts(entry.name)
        if parts is None:
            raise self.refusal(entry.name, "would be written outside its folder")
        if entry.kind == "folder":
            self._make_folder(entry, parts)
            return
        if not parts:
            raise self.refusal(entry.name, "has the name of the folder itself")
        above = self._open(entry.name, parts[:-1])
        if entry.kind == "file":
            self._write_file(entry, above, parts[-1])
        elif entry.kind == "link":
            self._make_link(entry.name, entry.target, parts, above)
        else:
            self._make_hard_link(entry, parts, above)

    def refusal(self, name: str, what: str) -> AllranksError:
        return AllranksError(
            f"{name!r} in {self._archive.name} {what}",
            where=str(self._archive),
            hint="remove it from the archive; the whole archive was refused",
        )

    def _parts(self, name: str) -> tuple[str, ...] | None:
        """The path below the folder, or None if it leads outside."""
        if name.startswith("/"):
            return None
        parts: list[str] = []
        for part in name.split("/"):
            if part == "..":
                if not parts:
                    return None
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        too_deep = len(parts) > _MAX_DEPTH and not self._as_it_was
        if too_deep or len(name) > _MAX_PATH:
            raise self.refusal(f"{name[:80]}…", "has too long a path, or too many folders in it")
        if "\0" in name:
            raise self.refusal(name, "is not a valid file name")
        return tuple(parts)

    def _close_last(self) -> None:
        if self._last[1] != self._root:
            os.close(self._last[1])
        self._last = (), self._root

    def _open(self, name: str, parts: tuple[str, ...]) -> int:
        """A descriptor of a folder, which is created if missing; valid until the next call."""
        if parts == self._last[0]:
            return self._last[1]
        self._close_last()
        at = self._root
        for number, part in enumerate(parts):
            try:
                below = self._open_or_make(name, at, part)
            finally:
                if number:
                    os.close(at)
            at = below
        self._last = parts, at
        return at

    def _open_or_make(self, name: str, above: int, part: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return self._open_existing(name, above, part)
        with contextlib.suppress(FileExistsError):  # another archive made it meanwhile
            os.mkdir(part, 0o777, dir_fd=above)
        return self._open_existing(name, above, part)

    def _open_existing(self, name: str, above: int, part: str) -> int:
        try:
            return os.open(part, _FOLDER_FLAGS, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        if stat.S_ISLNK(os.lstat(part, dir_fd=above).st_mode):
            raise self.refusal(name, f"would be written through the link {part!r}")
        raise self.refusal(name, f"lies below {part!r}, which is not a folder")

    def _make_folder(self, entry: Entry, parts: tuple[str, ...]) -> None:
        fd = self._open(entry.name, parts)
        if not parts:
            return  # keep the mode and the time of the caller's folder
        if entry.mtime is not None:
            self._times[parts] = entry.mtime
        current = stat.S_IMODE(os.fstat(fd).st_mode)
        # Keep a set-gid bit inherited from the folder above.
        mode = (entry.mode & 0o777 | 0o700) & ~self._mask | current & stat.S_ISGID
        if mode != current:
            with contextlib.suppress(PermissionError):  # it existed, and belongs to another user
                os.fchmod(fd, mode)

    def _write_file(self, entry: Entry, above: int, name: str) -> None:
        mode = entry.mode & 0o777 | (0 if self._as_it_was else 0o600)
        fd = self._create(
            entry.name, above, name, lambda: os.open(name, _FILE_FLAGS, mode, dir_fd=above)
        )
        try:
            for at, size in [(0, entry.size)] if entry.pieces is None else entry.pieces:
                os.lseek(fd, at, os.SEEK_SET)
                self._copy(entry, fd, size)
            os.ftruncate(fd, entry.size)
            if entry.mtime is not None:
                with contextlib.suppress(OSError, OverflowError, ValueError):  # an invalid time
                    os.utime(fd, (entry.mtime, entry.mtime))
        finally:
            os.close(fd)

    def _copy(self, entry: Entry, fd: int, remaining: int) -> None:
        while remaining > 0:
            data = entry.read(min(remaining, CHUNK))
            remaining -= len(data)
            if is_hole(data):
                os.lseek(fd, len(data), os.SEEK_CUR)
                written = len(data)
            else:
                written = os.write(fd, data)
            while written < len(data):  # a nearly full disk writes only part of it
                written += os.write(fd, data[written:])
            self._wrote(len(data))

    def _make_link(self, name: str, target: str, parts: tuple[str, ...], above: int) -> None:
        ups, rest = 0, [part for part in target.split("/") if part not in ("", ".")]
        while rest and rest[0] == "..":
            ups, rest = ups + 1, rest[1:]
        # `x/..` may be another folder if x is a link.
        leads_out = target.startswith("/") or ups >= len(parts) or ".." in rest
        if not target or (leads_out and not self._as_it_was):
            raise self.refusal(name, f"is a link that leads outside its folder: {target!r}")
        if "\0" in target or len(target) > _MAX_PATH:
            raise self.refusal(name, "is a link with an invalid target")
        self._create(name, above, parts[-1], lambda: os.symlink(target, parts[-1], dir_fd=above))

    def _make_hard_link(self, entry: Entry, parts: tuple[str, ...], above: int) -> None:
        source = self._parts(entry.target)
        if source is None:
            what = f"is a hard link that leads outside its folder: {entry.target!r}"
            raise self.refusal(entry.name, what)
        missing = f"is a hard link to {entry.target!r}, which does not come before it"
        if not source:
            raise self.refusal(entry.name, missing)
        target_folder = os.dup(above)  # opening the next folder closes this descriptor
        try:
            source_folder = self._open(entry.target, source[:-1])
            try:
                kind = os.lstat(source[-1], dir_fd=source_folder).st_mode
            except FileNotFoundError:
                raise self.refusal(entry.name, missing) from None
            if source == parts:
                return
            if stat.S_ISLNK(kind):
                # Check the target again: it may lead outside from another folder.
                target = os.readlink(source[-1], dir_fd=source_folder)
                self._make_link(entry.name, target, parts, target_folder)
            elif stat.S_ISREG(kind):
                self._create(
                    entry.name,
                    target_folder,
                    parts[-1],
                    lambda: os.link(
                        source[-1],
                        parts[-1],
                        src_dir_fd=source_folder,
                        dst_dir_fd=target_folder,
                        follow_symlinks=False,
                    ),
                )
                if stat.S_ISLNK(os.lstat(parts[-1], dir_fd=target_folder).st_mode):
                    os.unlink(parts[-1], dir_fd=target_folder)  # replaced by a link meanwhile
                    raise self.refusal(entry.name, missing)
            else:
                raise self.refusal(entry.name, missing)
        finally:
            os.close(target_folder)

    def _create(self, name: str, above: int, last: str, make: Callable[[], T]) -> T:
        """Call ``make``, first removing an entry of the same name: the later one wins, and never
        writes into a file that is hard-linked elsewhere. Returns its result."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileExistsError):
                return make()
            try:
                os.unlink(last, dir_fd=above)
            except FileNotFoundError:
                continue  # another archive removed it meanwhile
            except (IsADirectoryError, PermissionError):
                break
        raise self.refusal(name, "cannot replace the folder or file of that name")
