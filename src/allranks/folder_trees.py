"""Folders that users' programs fill, however deep.

Nothing here recurses by level, as ``shutil`` and ``os.walk`` do, and removing needs no path longer
than the kernel takes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

# The longest path that is kept: Linux takes 4,095 bytes, and a file may be unpacked elsewhere.
LONGEST = 3500
# So many levels are open at a time; a folder below is first moved up to the root.
_LEVELS = 64
# Linux takes one byte less.
_PATH_MAX = 4096
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of opening something else than a regular file, or nothing.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL)
# To pass through a folder: it need not be readable.
_THROUGH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Level(NamedTuple):
    """An open folder, and the names of the folders in it that are still there."""

    name: str
    fd: int
    folders: list[str]


def remove(path: str | os.PathLike[str], *, ignore_errors: bool = False) -> None:
    """Remove a folder with all that is in it, also from folders that we made read-only.

    What can be removed is. Then raises the first OSError, unless ``ignore_errors``.
    """
    failed: list[OSError] = []
    try:
        above, name = os.path.split(os.path.abspath(path))
        parent = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _remove(parent, name, failed)
        finally:
            os.close(parent)
    except OSError as error:
        failed.append(error)
    if failed and not ignore_errors:
        first = failed[0]
        raise OSError(first.errno, first.strerror, os.fspath(path)) from first


def _remove(parent: int, name: str, failed: list[OSError]) -> None:
    levels = [_emptied(parent, name, failed)]
    try:
        while levels:
            level = levels[-1]
            if not level.folders:
                levels.pop()
                os.close(level.fd)
                with _noted(failed):
                    os.rmdir(level.name, dir_fd=levels[-1].fd if levels else parent)
                continue
            name = level.folders.pop()
            with _noted(failed):
                if len(levels) < _LEVELS:
                    levels.append(_emptied(level.fd, name, failed))
                else:
                    near = f".deep-{os.urandom(8).hex()}"
                    os.rename(name, near, src_dir_fd=level.fd, dst_dir_fd=levels[0].fd)
                    levels[0].folders.append(near)
    finally:
        for level in levels:
            os.close(level.fd)


def _emptied(above: int, name: str, failed: list[OSError]) -> _Level:
    """Open a folder and remove all that is not a folder from it."""
    try:
        fd = os.open(name, _FLAGS, dir_fd=above)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=above)
        fd = os.open(name, _FLAGS, dir_fd=above)
    try:
        if os.fstat(fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with contextlib.suppress(OSError):
                os.fchmod(fd, stat.S_IRWXU)
        folders = []
        with os.scandir(fd) as scan:
            entries = list(scan)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
                continue
            with _noted(failed):
                os.unlink(entry.name, dir_fd=fd)
    except BaseException:
        os.close(fd)
        raise
    return _Level(name, fd, folders)


@contextlib.contextmanager
def _noted(failed: list[OSError]) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        pass  # removed by another
    except OSError as error:
        failed.append(error)


def walk(
    top: str | os.PathLike[str],
    topdown: bool = True,
    onerror: Callable[[OSError], object] | None = None,
    followlinks: bool = False,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like ``os.walk``, which recurses before Python 3.12. Folders whose path is too long for the
    kernel are an error of theirs."""
    pending: list[str | tuple[str, list[str], list[str]]] = [os.fspath(top)]
    while pending:
        folder = pending.pop()
        if isinstance(folder, tuple):
            yield folder
            continue
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    (folders if _is_folder(entry) else files).append(entry.name)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        if topdown:
            yield folder, folders, files
        else:
            pending.append((folder, folders, files))
        below = (os.path.join(folder, name) for name in reversed(folders))
        pending += [path for path in below if followlinks or not os.path.islink(path)]


def is_too_long(path: str) -> bool:
    """Whether the kernel takes no such path, so that only its folder can be listed."""
    return len(os.fsencode(path)) >= _PATH_MAX


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def files(
    top: str | os.PathLike[str], onerror: Callable[[OSError], object] | None = None
) -> Iterator[str]:
    """The paths of all files and links below a folder, if it exists."""
    for folder, folders, names in walk(top, onerror=onerror):
        yield from (os.path.join(folder, name) for name in names)
        paths = (os.path.join(folder, name) for name in folders)
        yield from (path for path in paths if os.path.islink(path))


def make(path: str | os.PathLike[str]) -> None:
    """Create a folder and those above it. Raises OSError."""
    missing, is_above_there = [os.fspath(path)], False
    while missing:
        try:
            os.mkdir(missing[-1])
        except FileNotFoundError:
            if is_above_there:  # a file system as /proc
                raise
            missing.append(os.path.dirname(missing[-1]))
            continue
        except FileExistsError:
            if not os.path.isdir(missing[-1]):
                raise
        missing.pop()
        is_above_there = True


def open_parent(root: str | Path, path: str, make: bool = False) -> tuple[int, str]:
    """A descriptor of the path's parent folder below ``root``, and the name in it. No link is
    followed; with ``make``, missing folders are created. Raises OSError, where a link is in the way
    NotADirectoryError."""
    *folders, name = path.split("/")
    if {"", ".", ".."} & {*folders, name}:
        raise OSError(errno.EINVAL, "not a path below the folder", path)
    at = os.open(root, _THROUGH)
    for folder in folders:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=at)
            below = os.open(folder, _THROUGH, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at, name


def make_below(root: str | Path, path: str) -> None:
    """Create a folder below ``root``, and those above it; see ``open_parent``. Raises OSError."""
    folder, _ = open_parent(root, f"{path}/-", make=True)
    os.close(folder)


@contextlib.contextmanager
def same_time(folder: int | str | Path) -> Iterator[None]:
    """What the block puts into a folder of users, or removes, leaves its time as it was: scripts
    look for the newest checkpoint by it. What others do there meanwhile counts as done by the
    block, so it should be short. Raises OSError if there is no such folder."""
    before = os.stat(folder).st_mtime_ns
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # it was removed
            os.utime(folder, ns=(before, before))


def by_descriptor(folder: int) -> str:
    """A path of a folder that ``open_parent`` opened, whose descriptor alone cannot change it."""
    return f"/proc/self/fd/{folder}"


def set_times(root: str | Path, times: Mapping[str, int]) -> None:
    """Give folders below ``root`` their times, after all that is in them. No link is followed; what
    is no folder, or cannot be changed, stays as it is."""
    for path, mtime_ns in times.items():
        with contextlib.suppress(OSError, OverflowError):
            above, _ = open_parent(root, f"{path}/-")
            try:
                os.utime(by_descriptor(above), ns=(mtime_ns, mtime_ns))
            finally:
                os.close(above)


def newest_times(files: Mapping[str, int]) -> dict[str, int]:
    """A time for each folder of ``files``, that of the newest one in it: what comes without times
    of its folders has the same ones wherever it is put."""
    folders = dict[str, int]()
    for path, mtime_ns in files.items():
        folder = path.rpartition("/")[0]
        while folder and mtime_ns > folders.get(folder, -1):
            folders[folder] = mtime_ns
            folder = folder.rpartition("/")[0]
    return folders


def open_below(root: str | Path, path: str, flags: int, make: bool = False) -> int:
    """A descriptor of a regular file at ``path`` below ``root``; with ``make``, missing folders are
    created. No link is followed, no pipe waited for. Raises OSError."""
    above, name = open_parent(root, path, make)
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=above)
    finally:
        os.close(above)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "not a regular file", path)
    os.set_blocking(opened, True)
    return opened


def open_file(
    path: Path, mode: str = "rb", below: str | Path | None = None, buffering: int = -1
) -> BinaryIO:
    """Open a regular file in a folder that a job can write to, with ``open_below`` a folder, by
    default the one that the file is in. Raises OSError."""
    root = below or path.parent

    def opener(_: str, flags: int) -> int:
        return open_below(root, str(path.relative_to(root)), flags)

    try:
        return cast(BinaryIO, open(path, mode, buffering, opener=opener))
    except ValueError:  # also where it is no name of a file
        raise OSError(errno.EINVAL, "not a path below the folder", str(path)) from None


class SkipAbsent:
    """Skips the rest of a block if a job has left out a file, or put something else in its place.
    Other OSErrors are raised, such as of a broken disk or too many open files."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, OSError) and error.errno in _ABSENT


def resolved(path: str | Path, roots: Iterable[str]) -> Path | None:
    """Where a path leads, through links; None if that is in none of the folders ``roots``."""
    real = Path(os.path.realpath(path))
    is_inside = any(real.is_relative_to(os.path.realpath(root)) for root in roots)
    return real if is_inside else None


def open_linked(path: Path, roots: Iterable[str]) -> BinaryIO:
    """Like ``open_file``, but follows links that stay in one of the folders ``roots``."""
    real = resolved(path, roots)
    if real is None:
        raise OSError(errno.EXDEV, "a link leads out of the job's folders", str(path))
    return open_file(real, below="/")


@contextlib.contextmanager
def replace_file(path: Path, below: str | Path) -> Iterator[BinaryIO]:
    """Write a file that appears when the block ends, and missing folders; see ``open_file``."""
    make(below)
    above, name = open_parent(below, str(path.relative_to(below)), make=True)
    part = f".{os.urandom(8).hex()}.part"
    try:
        with open_file(path.with_name(part), "xb", below) as file:
            yield file
        os.replace(part, name, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=above)
        raise
    finally:
        os.close(above)


def write_file(path: Path, data: bytes | str) -> None:
    """Write a file in a folder of ours, which whoever reads it sees whole, or not yet; for its
    owner only. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_file(path: Path, most: int = 1 << 20, below: str | Path | None = None) -> bytes:
    """The first ``most`` bytes of a file; see ``open_file``. Raises OSError."""
    with open_file(path, below=below, buffering=0) as file:
        return file.read(most)
