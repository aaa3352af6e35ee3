"""Writing what an archive holds into a folder, and nowhere else whatever the archive says.

Each path is walked from the folder's own descriptor, one name at a time, and no link is followed on
the way: so neither what the archive made before nor what others do beside it leads outside. A link
may lead up only at its start, from a folder that is known to be real: what it then meets are files,
folders, and links of which the same holds, so none of them ends outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from allranks.errors import AllranksError

CHUNK = 256 << 10
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# No system opens longer paths, and what is deeper is not easily taken away again.
_LONGEST, _DEEPEST = 4000, 200
# Two archives may bring the same name into one folder at the same time.
_TRIES = 8

T = TypeVar("T")
Kind = Literal["file", "folder", "link", "hard link"]


class Entry(NamedTuple):
    """One thing in an archive. ``target``: of links. ``pieces``: the places and sizes of what a
    file with holes really holds. ``read(n)`` gives the next bytes of its contents, n at most."""

    name: str
    kind: Kind
    size: int
    mode: int
    mtime: float | None
    read: Callable[[int], bytes]
    target: str = ""
    pieces: Sequence[tuple[int, int]] | None = None

    @property
    def stored(self) -> int:
        """The bytes of its contents that are written."""
        return self.size if self.pieces is None else sum(size for _, size in self.pieces)


class Extraction:
    """The folder of one archive. What is written carries no owner and no set-uid, set-gid or sticky
    bit, and whoever we are can always read, change and enter it."""

    def __init__(self, archive: Path, folder: Path, wrote: Callable[[int], None]) -> None:
        """``wrote`` is told of each piece that was written, and may raise."""
        self._archive, self._wrote = archive, wrote
        self._mask = os.umask(0o077)
        os.umask(self._mask & 0o077)
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._last: tuple[tuple[str, ...], int] = (), self._root

    def close(self) -> None:
        self._forget()
        os.close(self._root)
        os.umask(self._mask)

    def put(self, entry: Entry) -> None:
        """Write it. Raises AllranksError when it may not be, OSError when it cannot be."""
        parts = self._parts(entry.name)
        if parts is None:
            raise self.refusal(entry.name, "would be written outside its folder")
        if entry.kind == "folder":
            self._folder(entry, parts)
            return
        if not parts:
            raise self.refusal(entry.name, "has the name of the folder itself")
        above = self._open(entry.name, parts[:-1])
        if entry.kind == "file":
            self._file(entry, above, parts[-1])
        elif entry.kind == "link":
            self._link(entry.name, entry.target, parts, above)
        else:
            self._hard_link(entry, parts, above)

    def refusal(self, name: str, what: str) -> AllranksError:
        return AllranksError(
            f"{name!r} in {self._archive.name} {what}",
            where=str(self._archive),
            hint="nothing of that archive is used: pack it again without that",
        )

    def _parts(self, name: str) -> tuple[str, ...] | None:
        """Its path below the folder, or None when it leads elsewhere."""
        if name.startswith("/"):
            return None
        parts: list[str] = []
        for each in name.split("/"):
            if each == "..":
                if not parts:
                    return None
                parts.pop()
            elif each not in ("", "."):
                parts.append(each)
        if len(parts) > _DEEPEST or len(name) > _LONGEST:
            raise self.refusal(f"{name[:80]}…", "lies too deep, or has too long a name")
        if "\0" in name:
            raise self.refusal(name, "has a name that no file can have")
        return tuple(parts)

    def _forget(self) -> None:
        if self._last[1] != self._root:
            os.close(self._last[1])
        self._last = (), self._root

    def _open(self, name: str, parts: tuple[str, ...]) -> int:
        """A descriptor of that folder, made if need be; it is ours until the next call."""
        if parts == self._last[0]:
            return self._last[1]
        self._forget()
        at = self._root
        for number, part in enumerate(parts):
            try:
                below = self._enter(name, at, part)
            finally:
                if number:
                    os.close(at)
            at = below
        self._last = parts, at
        return at

    def _enter(self, name: str, above: int, part: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return self._enter_there(name, above, part)
        with contextlib.suppress(FileExistsError):  # another was sooner
            os.mkdir(part, 0o777, dir_fd=above)
        return self._enter_there(name, above, part)

    def _enter_there(self, name: str, above: int, part: str) -> int:
        try:
            return os.open(part, _FOLDER, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        if stat.S_ISLNK(os.lstat(part, dir_fd=above).st_mode):
            raise self.refusal(name, f"would be written through the link {part!r}")
        raise self.refusal(name, f"lies below {part!r}, which is no folder")

    def _folder(self, entry: Entry, parts: tuple[str, ...]) -> None:
        fd = self._open(entry.name, parts)
        if not parts:
            return  # the folder itself is the caller's
        now = stat.S_IMODE(os.fstat(fd).st_mode)
        # That files of a folder get its group is the disk's own custom, and passed on.
        wanted = (entry.mode & 0o777 | 0o700) & ~(self._mask & 0o077) | now & stat.S_ISGID
        if wanted != now:
            with contextlib.suppress(PermissionError):  # it was there, and is another's
                os.fchmod(fd, wanted)

    def _file(self, entry: Entry, above: int, name: str) -> None:
        fd = self._made(entry.name, above, name, lambda: os.open(
            name, _FILE, entry.mode & 0o777 | 0o600, dir_fd=above
        ))  # fmt: skip
        try:
            if entry.pieces is None:
                self._copy(entry, fd, entry.size)
            else:
                for at, size in entry.pieces:
                    os.lseek(fd, at, os.SEEK_SET)
                    self._copy(entry, fd, size)
                os.ftruncate(fd, entry.size)
            if entry.mtime is not None:
                with contextlib.suppress(OSError, OverflowError, ValueError):  # no such time
                    os.utime(fd, (entry.mtime, entry.mtime))
        finally:
            os.close(fd)

    def _copy(self, entry: Entry, fd: int, left: int) -> None:
        while left > 0:
            data = entry.read(min(left, CHUNK))
            left -= len(data)
            written = os.write(fd, data)
            while written < len(data):  # a disk that is nearly full takes a part of it
                written += os.write(fd, data[written:])
            self._wrote(len(data))

    def _link(self, name: str, target: str, parts: tuple[str, ...], above: int) -> None:
        ups, rest = 0, [each for each in target.split("/") if each not in ("", ".")]
        while rest and rest[0] == "..":
            ups, rest = ups + 1, rest[1:]
        # `x/..` is not here where x is a link to elsewhere.
        if target.startswith("/") or not target or ups >= len(parts) or ".." in rest:
            raise self.refusal(name, f"is a link that leads outside its folder: {target!r}")
        if "\0" in target or len(target) > _LONGEST:
            raise self.refusal(name, "is a link to what no file can be called")
        self._made(name, above, parts[-1], lambda: os.symlink(target, parts[-1], dir_fd=above))

    def _hard_link(self, entry: Entry, parts: tuple[str, ...], above: int) -> None:
        source = self._parts(entry.target)
        if source is None:
            what = f"is a hard link that leads outside its folder: {entry.target!r}"
            raise self.refusal(entry.name, what)
        lacking = f"is a hard link to {entry.target!r}, which the archive does not hold before it"
        if not source:
            raise self.refusal(entry.name, lacking)
        held = os.dup(above)  # the next folder that is opened closes this one
        try:
            there = self._open(entry.target, source[:-1])
            try:
                kind = os.lstat(source[-1], dir_fd=there).st_mode
            except FileNotFoundError:
                raise self.refusal(entry.name, lacking) from None
            if source == parts:
                return
            if stat.S_ISLNK(kind):
                # In another folder the same words may lead elsewhere.
                target = os.readlink(source[-1], dir_fd=there)
                self._link(entry.name, target, parts, held)
            elif stat.S_ISREG(kind):
                self._made(entry.name, held, parts[-1], lambda: os.link(
                    source[-1], parts[-1],
                    src_dir_fd=there, dst_dir_fd=held, follow_symlinks=False,
                ))  # fmt: skip
                if stat.S_ISLNK(os.lstat(parts[-1], dir_fd=held).st_mode):
                    os.unlink(parts[-1], dir_fd=held)  # another put a link there meanwhile
                    raise self.refusal(entry.name, lacking)
            else:
                raise self.refusal(entry.name, lacking)
        finally:
            os.close(held)

    def _made(self, name: str, above: int, last: str, make: Callable[[], T]) -> T:
        """What ``make`` returns once nothing is in its way: of two of a name the later holds, and
        is a file of its own, not written into one that has another name elsewhere."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                return make()
            try:
                os.unlink(last, dir_fd=above)
            except FileNotFoundError:
                continue  # another was sooner
            except (IsADirectoryError, PermissionError):
                break
        raise self.refusal(name, "has the place of a folder, or of what cannot be replaced")
