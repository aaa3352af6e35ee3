"""Keeping what the ranks wrote into their working folder when an attempt ends.

New and changed files are found by size, time and inode against a listing of the folder as it was
laid out; no file is read. They are moved into the job's record: on one disk that copies nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks.plan.data.kept_files import (
    ABOUT,
    FILES,
    File,
    LeftOut,
    Summary,
    Why,
    choose,
    left_out,
    note,
)
from allranks.plan.plan import Task
from allranks.snapshot.files import NEVER, ignore_rules
from allranks.statuses import Reason

_PIECE = 4 << 20
# A folder with one of these is a virtual environment, or a cache (https://bford.info/cachedir).
_MARKS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
_HOME = frozenset({"token", "server.lock"})
# After these no other file can be written, either.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)

# Those who end a job for these reasons wait for it.
_SHORT = (Reason.CANCELED, Reason.TIME_LIMIT, Reason.PREEMPTED)

Listing = Mapping[str, tuple[int, int, int]]


class OutOfTime(Exception):
    """Raised by ``tick``: the files that are left are not copied."""


class _Found(NamedTuple):
    """``links`` are symbolic ones that stay inside; ``closed`` are folders that cannot be read."""

    files: list[File]
    ignored: list[File]
    links: list[str]
    closed: list[File]
    beyond: list[File]


def listing(folder: Path) -> Listing:
    """How every file below a folder looks."""
    return {path: _looks(status) for path, status in _walk(folder, [])}


class Deadline:
    """How long files may be copied: without limit, but no longer than ``grace`` seconds once the
    ``order`` is to end for a reason that leaves no more time."""

    def __init__(self, order: Callable[[], Mapping[str, Any]], grace: float) -> None:
        self._order, self._grace = order, grace
        self._until: float | None = None

    def check(self) -> None:
        """Raise OutOfTime when the time is up."""
        order, now = self._order(), time.monotonic()
        if self._until is None and order["do"] == "stop" and order["why"] in _SHORT:
            self._until = now + self._grace
        if self._until is not None and now > self._until:
            raise OutOfTime


def set_aside(task: Task, node: int, attempt: int) -> None:
    """Move what the attempt before kept of this node to ``attempts/N/work``: ``artifacts/work`` is
    the last attempt's. Raises OSError."""
    kept, goal = (_place(task, node, each) for each in ("artifacts", f"attempts/{attempt - 1}"))
    if attempt > 1 and os.path.lexists(kept) and not os.path.lexists(goal):
        goal.parent.mkdir(parents=True, exist_ok=True)
        kept.rename(goal)


def kept(
    task: Task, node: int, work: Path, before: Listing, deadline: Deadline
) -> dict[str, Any] | None:
    """Keep them, and say what the record is to note of it; None where there was nothing."""
    found = keep(task, node, work, before, deadline.check)
    return None if found == Summary() else {"about": ABOUT, **note(found)}


def keep(task: Task, node: int, work: Path, before: Listing, tick: Callable[[], None]) -> Summary:
    """Move what is new or changed in the folder ``work`` since the listing ``before`` to the job's
    record, ``task.keep_work`` bytes at most (None: all, ignored files too).

    ``tick`` is called for each file and while it is copied, and may raise OutOfTime. A file that
    cannot be kept is part of the summary.
    """
    limit = task.keep_work
    if task.in_place or limit == 0:
        return Summary()
    found = _find(work, before, ignoring=limit is not None)
    chosen, above = choose(found.files, limit)
    moved, missed = _move_all(work, _place(task, node, "artifacts"), chosen, found.links, tick)
    return Summary(
        len(moved),
        sum(file.size for file in moved),
        (
            *left_out(Why.LIMIT, above),
            *left_out(Why.COUNT, found.beyond),
            *left_out(Why.IGNORED, found.ignored),
            *left_out(Why.FAILED, found.closed, "cannot be read"),
            *missed,
        ),
    )


def _place(task: Task, node: int, within: str) -> Path:
    """The folder for a node's files; a single node needs none of its own."""
    own = [f"node-{node}"] if task.nodes > 1 else []
    return Path(task.record, within, "work", *own)


def _looks(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _walk(root: Path, closed: list[File]) -> Iterator[tuple[str, os.stat_result]]:
    """Plain files and links, those near the top first, but for caches and virtual environments.
    Neither links nor mounts of other disks are followed; ``closed`` hears of what cannot be
    read."""
    folders = deque([""])
    while folders:
        here = folders.popleft()
        try:
            with os.scandir(os.path.join(root, here)) as found:
                entries = list(found)
        except OSError:
            closed.append(File(here, 0))
            continue
        names = {entry.name for entry in entries}
        if here and (_MARKS & names or names >= _HOME):
            continue
        for entry in entries:
            path = here + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in NEVER:
                    folders.append(f"{path}/")
            else:
                with contextlib.suppress(OSError):  # gone meanwhile
                    yield path, entry.stat(follow_symlinks=False)


def _find(work: Path, before: Listing, ignoring: bool) -> _Found:
    found = _Found([], [], [], [], [])
    ignored: Callable[[str], bool] | None = None if ignoring else lambda path: False
    for path, status in _walk(work, found.closed):
        if before.get(path) == _looks(status):
            continue
        if stat.S_ISLNK(status.st_mode):
            if _stays_inside(work, path):
                found.links.append(path)
        elif stat.S_ISREG(status.st_mode):
            if ignored is None:
                ignored = _ignored(work)
            file = File(path, status.st_size)
            if ignored(path):
                found.ignored.append(file)
            elif ignoring and len(found.files) >= FILES:
                found.beyond.append(file)
            else:
                found.files.append(file)
    return found


def _ignored(work: Path) -> Callable[[str], bool]:
    """Whether the rules that the snapshot was taken by leave a file out; where a node has no
    reader of them, or they cannot be read, all is kept."""
    try:
        return ignore_rules(work)
    except (ImportError, OSError, ValueError):
        return lambda path: False


def _stays_inside(work: Path, path: str) -> bool:
    try:
        target = os.readlink(work / path)
    except OSError:
        return False
    lands = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return not os.path.isabs(target) and lands.split("/")[0] != ".."


def _move_all(
    work: Path,
    goal: Path,
    files: Sequence[File],
    links: Sequence[str],
    tick: Callable[[], None],
) -> tuple[list[File], list[LeftOut]]:
    """The files that are at ``goal`` now, and those that are not."""
    if not files:
        return [], []
    moved: list[File] = []
    failed: list[File] = []
    said = ""
    mover = _Mover(work, goal, tick)
    for number, file in enumerate(files):
        try:
            tick()
            mover.move(file.path)
            moved.append(file)
        except OutOfTime:
            return moved, [
                *left_out(Why.TIME, files[number:]),
                *left_out(Why.FAILED, failed, said),
            ]
        except OSError as error:
            said = said or (error.strerror or str(error)).lower()
            failed.append(file)
            if error.errno in _NO_ROOM:
                failed += files[number + 1 :]
                break
    for path in links:
        with contextlib.suppress(OSError, OutOfTime):
            mover.move(path)
    return moved, left_out(Why.FAILED, failed, said)


class _Mover:
    """Moves files to the same paths below ``goal``, which is made with the first of them."""

    def __init__(self, work: Path, goal: Path, tick: Callable[[], None]) -> None:
        self._work, self._goal, self._tick = work, goal, tick
        self._made: set[str] = set()

    def move(self, path: str) -> None:
        folder = os.path.dirname(path)
        if folder not in self._made:
            self._make(folder)
        source, goal = self._work / path, self._goal / path
        try:
            os.rename(source, goal)
        except OSError:
            try:  # a folder that may not be changed still lets its files be linked
                os.link(source, goal, follow_symlinks=False)
            except OSError:
                self._copy(source, goal)

    def _make(self, folder: str) -> None:
        if not self._made:
            for each in (self._goal.parent, self._goal):
                # Ranks know where the record is: a link of theirs must not lead elsewhere.
                if each.is_symlink():
                    each.unlink()
                each.mkdir(parents=True, exist_ok=True)
        (self._goal / folder).mkdir(parents=True, exist_ok=True)
        self._made.add(folder)

    def _copy(self, source: Path, goal: Path) -> None:
        """Whole or not at all; holes stay holes."""
        if source.is_symlink():
            goal.symlink_to(os.readlink(source))
            return
        beside = self._goal / f".{os.getpid()}.part"
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(os.open(source, flags), "rb") as file, beside.open("wb") as copy:
                self._copy_data(file.fileno(), copy.fileno())
                status = os.fstat(file.fileno())
                os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
                os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            beside.replace(goal)
        finally:
            beside.unlink(missing_ok=True)

    def _copy_data(self, source: int, goal: int) -> None:
        size, at = os.fstat(source).st_size, 0
        while at < size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # nothing but a hole up to the end
            end = os.lseek(source, at, os.SEEK_HOLE)
            while at < end and (piece := os.pread(source, min(_PIECE, end - at), at)):
                self._tick()
                done = 0
                while done < len(piece):
                    done += os.pwrite(goal, piece[done:], at + done)
                at += len(piece)
        os.ftruncate(goal, size)
