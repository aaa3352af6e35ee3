"""Write downloaded files safely: always inside the folder, complete or absent.

Every folder is opened from its parent and never through a symbolic link, so neither names nor
existing content lead outside. Data goes to a ``.part`` file under a lock: a second download of the
same file waits and finds it complete.
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
from collections.abc import Container, Iterator, Mapping
from pathlib import Path, PurePosixPath

from allranks import folder_trees
from allranks.core.data.state_manifest import stays_inside
from allranks.core.shared_work import Interrupted
from allranks.core.text import flaw
from allranks.disk_space import is_hole
from allranks.errors import ServerError

_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# The interval of checks whether another download of the same file is done.
_LOOK = 0.05
# File systems without locks do not protect simultaneous downloads.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


def checked(path: str, below: Container[str] | None = None) -> str:
    """The path sent by the server. Raises ServerError if it leads outside, or not to one of the
    folders ``below`` which everything asked for is."""
    words = path.split("/")
    is_elsewhere = below is not None and words[0] not in below
    if is_elsewhere or {"", ".", ".."} & {*words} or flaw(path, names=True) is not None:
        hint = "nothing was written; check that this is the right server"
        raise ServerError(f"the server sent a path outside of the folder: {path!r}", hint=hint)
    return path


def beside(path: str, taken: Container[str]) -> str:
    """The unique name of the part of ``path``, in the same folder."""
    folder, slash, name = path.rpartition("/")
    part = name + ".part"
    if len(os.fsencode(part)) > 255:  # the limit of file systems
        part = f".{zlib.crc32(os.fsencode(name)):08x}.part"
    while folder + slash + part in taken:
        part = f".{part}" if len(part) > 240 else part + ".part"
    return part


def is_there(folder: Path, path: str, size: int, mtime_ns: int, sha256: str = "") -> bool:
    """Whether the complete file exists with the server's time; with a ``sha256`` its content is
    verified."""
    try:
        if not _same(os.lstat(folder / path), size, mtime_ns):
            return False
        os.close(_parent(folder, path)[0])
        if sha256:
            with open(folder / path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
    return True


@contextlib.contextmanager
def destination(folder: Path, path: str, part: str, stop: threading.Event) -> Iterator[Destination]:
    """A ``Destination`` with an exclusive lock. A partial file is kept for the next download.
    Raises ServerError without write permission, Interrupted while waiting for the lock."""
    made: Destination | None = None
    try:
        made = Destination(folder, path, part, stop)
        yield made
    except OSError as error:
        raise _unwritable(folder / path, error) from error
    finally:
        if made is not None:
            made.close()


def make_folder(folder: Path, path: str) -> None:
    """Make a folder, which may exist. Raises ServerError."""
    try:
        os.close(_parent(folder, f"{checked(path)}/-", make=True)[0])
    except OSError as error:
        raise _unwritable(folder / path, error) from error


def _unwritable(path: Path, error: OSError) -> ServerError:
    return ServerError(
        f"cannot write here: {(error.strerror or str(error)).lower()}",
        where=str(path),
        hint=_HINTS.get(error.errno or 0, "choose another folder: -p DIR"),
    )


class Destination:
    """A file that is being written: ``size`` bytes so far, whose CRC-32 is ``crc``."""

    def __init__(self, folder: Path, path: str, part: str, stop: threading.Event) -> None:
        self._part, self._stop = part, stop
        self._folder, self._name = _parent(folder, path, make=True)
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
        """Read the existing part to compute ``crc``."""
        self.size = self.crc = 0
        for piece in self._pieces():
            self.crc = zlib.crc32(piece, self.crc)
            self.size += len(piece)

    def cut(self, size: int = 0) -> None:
        """Truncate the part to ``size`` bytes; call ``read`` to update ``crc``."""
        os.ftruncate(self._file, size)
        self.size, self.crc = size, 0

    def write(self, piece: bytes | memoryview) -> None:
        self._go_on()
        left = memoryview(piece)
        while left:
            if is_hole(left):
                written = len(left)
                os.ftruncate(self._file, self.size + written)
            else:
                written = os.pwrite(self._file, left, self.size)
            self.crc = zlib.crc32(left[:written], self.crc)
            self.size += written
            left = left[written:]

    def finish(self, mtime_ns: int | None, sha256: str = "", mode: int | None = None) -> None:
        """Move the complete file into place with the server's time, and a ``mode`` of its own.
        Raises ServerError and removes it if it does not match ``sha256``."""
        if sha256 and self._sha256() != sha256:
            self.cut()
            raise ServerError(
                "it is damaged: the server's file differs from what was registered",
                where=self._name,
                hint="register it again from an intact copy, or use another version",
            )
        if mtime_ns is not None:
            with contextlib.suppress(OverflowError):  # a time that no file has
                os.utime(self._file, ns=(mtime_ns, mtime_ns))
        if mode is not None:
            os.fchmod(self._file, mode)
        # Replaces a symbolic link itself, not its target.
        os.replace(self._part, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._kept = False

    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for piece in self._pieces():
            digest.update(piece)
        return digest.hexdigest()

    def _pieces(self) -> Iterator[bytes]:
        done = 0
        while piece := os.pread(self._file, 1 << 20, done):
            self._go_on()
            yield piece
            done += len(piece)

    def close(self) -> None:
        if self._kept and self.size == 0:
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=self._folder)
        os.close(self._file)
        os.close(self._folder)

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise Interrupted

    def _refuse_a_folder(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "a folder of that name exists")

    def _claimed(self) -> int:
        while True:
            try:
                file = os.open(self._part, _PART, 0o666, dir_fd=self._folder)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                os.unlink(self._part, dir_fd=self._folder)  # a symbolic link, not ours
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
        """Whether the file is still the part: its previous holder may have finished."""
        status = os.fstat(file)
        try:
            named = os.stat(self._part, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not os.path.samestat(status, named):
            return False
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return True
        # A pipe or a hard link: data would go elsewhere.
        os.unlink(self._part, dir_fd=self._folder)
        return False


_AGAIN = "and run the same command again; what was downloaded is kept"
_HINTS = {
    errno.ENOSPC: f"free space on that disk {_AGAIN}",
    errno.EDQUOT: f"free space on that disk {_AGAIN}",
    errno.EFBIG: f"free space on that disk {_AGAIN}",
    errno.ELOOP: "a symbolic link is in the way: remove it, or choose another folder: -p DIR",
    errno.EISDIR: "move it away, or choose another folder: -p DIR",
    errno.ENOTDIR: "what is in the way is not a folder: move it away, or choose another: -p DIR",
}


def set_folder_times(folder: Path, times: Mapping[str, int]) -> None:
    """Give folders their times, once all is in them."""
    folder_trees.set_times(os.path.realpath(folder), {checked(path): times[path] for path in times})


def place_link(folder: Path, path: str, target: str, above: str = "") -> bool:
    """Make a link in place of another one, or of nothing; whether it is there. False for one that
    could lead out of the folder that ``above`` and the path begin with, or where something else
    is."""
    place = folder / checked(path)
    is_free = place.is_symlink() or not os.path.lexists(place)
    try:
        if is_free and stays_inside(above + path, target):
            replace_by_link(folder, path, target)
            return True
    except OSError:
        pass
    return False


def replace_by_link(folder: Path, path: str, target: str) -> None:
    """Make a link, in place of a file or link. Raises OSError. The caller has checked where it
    leads."""
    above, name = _parent(folder, checked(path), make=True)
    part = beside(name, ())
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=above)
        os.symlink(target, part, dir_fd=above)
        os.replace(part, name, src_dir_fd=above, dst_dir_fd=above)
    finally:
        os.close(above)


def _same(status: os.stat_result, size: int, mtime_ns: int) -> bool:
    # To the microsecond, the precision of some file systems.
    near = abs(status.st_mtime_ns - mtime_ns) < 1000
    return stat.S_ISREG(status.st_mode) and status.st_size == size and near


def _parent(folder: Path, path: str, *, make: bool = False) -> tuple[int, str]:
    """As ``folder_trees.open_parent``: ``folder`` is the only one that may be a link."""
    if make:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        return folder_trees.open_parent(os.path.realpath(folder), path, make)
    except NotADirectoryError:
        for above in reversed(PurePosixPath(path).parents):
            if os.path.islink(folder / above):
                raise OSError(errno.ELOOP, f"{above.name} is a symbolic link") from None
        raise
