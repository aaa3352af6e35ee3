"""Where a fetched file lands: below its folder whatever it is called, and whole or not there.

Every folder on the way is opened from the one before it and never through a symbolic link, so that
neither a name nor what lies in the folder already can lead elsewhere. Bytes go to a ``.part``
beside the file, under a lock: of two who fetch the same, the second waits and finds it there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import threading
import zlib
from collections.abc import Container, Iterator
from pathlib import Path

from allranks.errors import ServerError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# How often one looks whether another, who fetches the same file, is done with it.
_LOOK = 0.05
# Where a file system knows no locks, two who fetch into it at once are on their own.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


class Stopped(Exception):
    """The download ends here: it was interrupted, or failed elsewhere."""


def checked(path: str) -> str:
    """The path, which the server named; raises ServerError for one that would lead elsewhere."""
    if "\0" in path or any(word in ("", ".", "..") for word in path.split("/")):
        raise ServerError(
            f"the server names a file that would lie elsewhere: {path!r}",
            hint="nothing was written; is it the server you mean?",
        )
    return path


def beside(goal: str, taken: Container[str]) -> str:
    """The name of the part of ``goal``, beside it: none that another file will have."""
    folder, slash, name = goal.rpartition("/")
    part = name + ".part"
    if len(os.fsencode(part)) > 255:  # the longest that file systems take
        part = f".{zlib.crc32(os.fsencode(name)):08x}.part"
    while folder + slash + part in taken:
        part = f".{part}" if len(part) > 240 else part + ".part"
    return part


def is_there(folder: Path, goal: str, size: int, mtime_ns: int, sha256: str = "") -> bool:
    """Whether the file lies there whole, and as old as it is on the server; where its ``sha256`` is
    known, it is read."""
    try:
        if not _same(os.lstat(folder / goal), size, mtime_ns):
            return False
        os.close(_opened(folder, goal.split("/")[:-1], make=False))
        if sha256:
            with open(folder / goal, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
    return True


@contextlib.contextmanager
def destination(folder: Path, goal: str, part: str, stop: threading.Event) -> Iterator[Destination]:
    """A ``Landing``, ours alone meanwhile. What was written of it stays, for the next to go on
    with. Raises ServerError where one may not write, Stopped while waiting for another."""
    made: Destination | None = None
    try:
        made = Destination(folder, goal, part, stop)
        yield made
    except OSError as error:
        raise ServerError(
            f"it cannot be written here: {(error.strerror or str(error)).lower()}",
            where=str(folder / goal),
            hint=_HINTS.get(error.errno or 0, "name another folder: -p DIR"),
        ) from error
    finally:
        if made is not None:
            made.close()


class Destination:
    """A file that is being written: ``size`` bytes so far, whose CRC-32 is ``crc``."""

    def __init__(self, folder: Path, goal: str, part: str, stop: threading.Event) -> None:
        *words, self._name = goal.split("/")
        self._part, self._stop = part, stop
        self._folder = _opened(folder, words, make=True)
        try:
            self._refuse_a_folder()
            self._file = self._claimed()
        except BaseException:
            os.close(self._folder)
            raise
        self._kept = True
        self.size = os.fstat(self._file).st_size
        self.crc = 0

    def read(self) -> None:
        """Take the part as it is, for ``crc``."""
        self.crc = done = 0
        while piece := os.pread(self._file, 1 << 20, done):
            self._go_on()
            self.crc = zlib.crc32(piece, self.crc)
            done += len(piece)
        self.size = done

    def cut(self, size: int = 0) -> None:
        """Keep the first ``size`` bytes of the part; ``crc`` is that of none until ``read``."""
        os.ftruncate(self._file, size)
        self.size, self.crc = size, 0

    def write(self, piece: bytes | memoryview) -> None:
        self._go_on()
        left = memoryview(piece)
        while left:
            written = os.pwrite(self._file, left, self.size)
            self.crc = zlib.crc32(left[:written], self.crc)
            self.size += written
            left = left[written:]

    def finish(self, mtime_ns: int, sha256: str = "") -> None:
        """It is whole, and as old as on the server: by that it is known again. Raises ServerError
        when it is not what ``sha256`` says, and keeps nothing of it."""
        if sha256 and self._sha256() != sha256:
            self.cut()
            raise ServerError(
                "it is damaged: the server's file is not what was registered",
                where=self._name,
                hint="register it again from where it is whole: that mends it, or take a version "
                "that is not damaged",
            )
        os.utime(self._file, ns=(mtime_ns, mtime_ns))
        # Takes the place of a symbolic link, and of nothing that the link leads to.
        os.replace(self._part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._kept = False

    def _sha256(self) -> str:
        found, done = hashlib.sha256(), 0
        while piece := os.pread(self._file, 1 << 20, done):
            self._go_on()
            found.update(piece)
            done += len(piece)
        return found.hexdigest()

    def discard(self) -> None:
        self.cut()

    def close(self) -> None:
        if self._kept and self.size == 0:
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=self._folder)
        os.close(self._file)
        os.close(self._folder)

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _refuse_a_folder(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, "a folder has its name")

    def _claimed(self) -> int:
        while True:
            try:
                file = os.open(self._part, _PART, 0o666, dir_fd=self._folder)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                os.unlink(self._part, dir_fd=self._folder)  # a symbolic link: none of ours
                continue
            try:
                self._lock(file)
                if self._is_ours(file):
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)

    def _lock(self, file: int) -> None:
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._go_on()
                self._stop.wait(_LOOK)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return None
                raise

    def _is_ours(self, file: int) -> bool:
        """Whether the file is the part still, and nothing else: who held it may have finished."""
        status = os.fstat(file)
        try:
            named = os.stat(self._part, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not os.path.samestat(status, named):
            return False
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return True
        # A pipe, or a second name of some other file: what is written there would go elsewhere.
        os.unlink(self._part, dir_fd=self._folder)
        return False


_AGAIN = "and run the same command again: what was fetched is kept"
_HINTS = {
    errno.ENOSPC: f"make room {_AGAIN}",
    errno.EDQUOT: f"make room {_AGAIN}",
    errno.EFBIG: f"make room {_AGAIN}",
    errno.ELOOP: "a symbolic link lies in its way: remove it, or name another folder: -p DIR",
    errno.EISDIR: "move it away, or name another folder: -p DIR",
    errno.ENOTDIR: "what lies in its way is no folder: move it away, or name another: -p DIR",
}


def _same(found: os.stat_result, size: int, mtime_ns: int) -> bool:
    # To the microsecond: some file systems keep no more of a time than that.
    near = abs(found.st_mtime_ns - mtime_ns) < 1000
    return stat.S_ISREG(found.st_mode) and found.st_size == size and near


def _opened(folder: Path, words: list[str], *, make: bool) -> int:
    """A descriptor of the folder ``words`` below ``folder``, which alone may be a link itself."""
    try:
        at = os.open(folder, _DIRECTORY)
    except FileNotFoundError:
        if not make:
            raise
        folder.mkdir(parents=True, exist_ok=True)
        at = os.open(folder, _DIRECTORY)
    for word in words:
        above = at
        try:
            at = _below(above, word, make)
        except NotADirectoryError:
            if stat.S_ISLNK(os.stat(word, dir_fd=above, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, f"{word} is a symbolic link") from None
            raise
        finally:
            os.close(above)
    return at


def _below(above: int, word: str, make: bool) -> int:
    try:
        return os.open(word, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # another of our connections made it
        os.mkdir(word, dir_fd=above)
    return os.open(word, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
