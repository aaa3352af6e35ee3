"""Move files that the ranks wrote to their working folder into the job's record.

New and changed files differ in size, time or inode from a listing made before the ranks started; no
file is read. On one disk, moving copies nothing.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import folder_trees
from allranks.agent.lifecycle import unsaved
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.parts import Part, Run
from allranks.core.data.kept_files import (
    ABOUT,
    NOT_KEPT,
    File,
    Missed,
    Summary,
    Why,
    choose,
    left_out,
    note,
)
from allranks.core.data.kept_files import listing as list_missed
from allranks.core.data.working_set import folders_above
from allranks.core.lifecycle.phases import Phase
from allranks.core.plan import Task
from allranks.core.text import printable
from allranks.events import Kind
from allranks.masking import holds_secrets
from allranks.snapshot.ignore import NEVER
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.api.agents import Assignment

_PIECE = 4 << 20
# A folder with one of these is a virtual environment, or a cache (https://bford.info/cachedir).
_MARKS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
_HOME = frozenset({"token", "server.lock"})
# After these errors no other file can be written, either.
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)

# With these reasons the time to copy files is limited.
_LIMITED = (Reason.CANCELED, Reason.TIME_LIMIT, Reason.PREEMPTED)

# Inode, size and modification time of each file.
Listing = Mapping[str, tuple[int, int, int]]


class OutOfTime(Exception):
    """Raised by ``tick``: do not copy the remaining files."""


class _Changes(NamedTuple):
    """New and changed files. ``links`` are symbolic links that stay inside the folder;
    ``unreadable`` and ``caches`` are folders."""

    files: list[File]
    secrets: list[File]
    links: list[str]
    unreadable: list[File]
    caches: list[File]


def listing(folder: Path) -> Listing:
    """List all files below a folder, to find those that change later."""
    files: dict[str, tuple[int, int, int]] = {}
    folders = [""]
    while folders:
        above = folders.pop()
        with os.scandir(os.path.join(folder, above)) as entries:
            for entry in entries:
                path = above + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                else:
                    files[path] = _identity(entry.stat(follow_symlinks=False))
    return files


class Deadline:
    """The time limit for copying files: ``grace`` seconds from the moment that ``order`` stops the
    job for a reason that limits it; none before."""

    def __init__(self, order: Callable[[], Assignment], grace: float) -> None:
        self._order, self._grace = order, grace
        self._until: float | None = None

    def check(self) -> None:
        """Raise OutOfTime after the limit."""
        order = self._order()
        now = time.monotonic()
        if self._until is None and order["do"] == "stop" and order["why"] in _LIMITED:
            self._until = now + self._grace
        if self._until is not None and now > self._until:
            raise OutOfTime


def set_aside(task: Task, node: int, attempt: int) -> None:
    """``artifacts/work`` is for the latest attempt: list the names and sizes of what this node kept
    in the previous one in ``attempts/N/work``, for the working folder has the files. With fresh
    working folders nothing else has them: move them there. Raises OSError."""
    kept = _kept_folder(task, node, "artifacts")
    target = _kept_folder(task, node, f"attempts/{attempt - 1}")
    if attempt == 1 or not os.path.lexists(kept) or os.path.lexists(target):
        return
    if task.fresh_work:
        target.parent.mkdir(parents=True, exist_ok=True)
        kept.rename(target)
        return
    listed = Path(task.record, "attempts", str(attempt - 1), "work", f"node-{node}.txt")
    files = sorted(_walk(kept, [], []))
    lines = (f"{status.st_size:>15,}  {printable(path)}\n" for path, status in files)
    with folder_trees.replace_file(listed, task.record) as file:
        file.write("".join(lines).encode())
    if kept.is_symlink():
        kept.unlink()
    else:
        folder_trees.remove(kept)


class KeptFiles(Part):
    """Puts new files of the working folder into the record. They stay where they are, too, as long
    as another attempt may need them. ``goes_on``: see `WorkingFolder`."""

    phase = Phase.STATE

    def __init__(self, calls: AgentCalls, goes_on: int) -> None:
        self._calls, self._goes_on = calls, goes_on

    def begin(self, run: Run) -> None:
        set_aside(run.task, self._calls.where.node, run.number)
        self._deadline = Deadline(self._calls.order, self._calls.clocks.grace)
        # One for each call of `finish`: the record adds them up.
        self._notes = list[dict[str, Any]]()

    def finish(self, run: Run) -> str:
        stay = run.task.nodes > 1 or not run.is_done
        summary = keep(
            run.task,
            self._calls.where.node,
            run.work.folder,
            run.work.laid_out,
            self._deadline.check,
            attempt=run.number,
            stay=stay,
        )
        if summary != Summary():
            if self._notes and (stay or not self._notes[-1]["files"]):
                self._notes.pop()  # it is in this note, too, or nothing had space
            size = summary.size + sum(group.size for group in summary.left_out)
            goes_on = -1 if run.is_done else self._goes_on
            kept = note(summary._replace(continues=size <= goes_on))
            self._notes.append({"about": ABOUT, **kept})
            if why := disk_error(kept):
                return why
        self._say_notes()
        return ""

    def lost(self, run: Run, why: str) -> None:
        self._say_notes()
        if run.is_done:
            kept = unsaved.keep(run.work.folder, run.task, self._calls.where)
            message = f"not all of the working folder is saved: {why}{kept}"
            unsaved.fail(run, self._calls, message)

    def _say_notes(self) -> None:
        for item in self._notes:
            is_last = item is self._notes[-1]
            self._calls.say(Kind.NOTE, **(item if is_last else {**item, "left_out": []}))


def disk_error(note: Mapping[str, Any]) -> str:
    """The error of a disk that kept files from being moved, by the note on them."""
    errors = {os.strerror(code).lower() for code in _FATAL}
    return next((file["said"] for file in note["left_out"] if file["said"] in errors), "")


def keep(
    task: Task,
    node: int,
    work: Path,
    before: Listing,
    tick: Callable[[], None],
    *,
    attempt: int = 1,
    stay: bool = False,
) -> Summary:
    """Move files in ``work`` that are new or changed since ``before`` to the job's record, at most
    ``task.keep_work`` bytes (None: all), whatever ignore files say: those rule what goes into a
    job. With ``stay`` they are linked, because another attempt may need them in ``work``.

    ``tick`` is called for each file and while it is copied, and may raise OutOfTime. The summary
    has the files that could not be kept; those that it cannot name are listed in the record.
    """
    if task.in_place or task.keep_work == 0:
        return Summary()
    changes = _find_changes(work, before)
    choice = choose(changes.files, task.keep_work)
    mover = _Mover(work, _kept_folder(task, node, "artifacts"), task.record, tick, stay)
    moved, failed = _move_all(mover, choice.kept, changes.links)
    missed = [
        Missed(Why.LIMIT, choice.too_large),
        Missed(Why.COUNT, choice.too_many),
        Missed(Why.SECRET, changes.secrets),
        Missed(Why.CACHE, changes.caches),
        Missed(Why.FAILED, changes.unreadable, "cannot be read"),
        *failed,
    ]
    if lines := list_missed(missed):
        target = Path(task.record, "attempts", str(attempt), NOT_KEPT, f"node-{node}.txt")
        with (
            contextlib.suppress(OSError),  # a full disk: the summary has the largest
            folder_trees.replace_file(target, task.record) as file,
        ):
            file.write(lines.encode())
    return Summary(len(moved), sum(file.size for file in moved), left_out(missed))


def _kept_folder(task: Task, node: int, within: str) -> Path:
    """The folder for a node's files; the node has its own only if there are several."""
    own = [f"node-{node}"] if task.nodes > 1 else []
    return Path(task.record, within, "work", *own)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _walk(
    root: Path, unreadable: list[File], caches: list[File]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and links breadth-first, except in ``caches`` and virtual environments. Does not
    follow links. Folders that cannot be read are added to ``unreadable``."""
    folders = deque([""])
    while folders:
        folder = folders.popleft()
        try:
            with os.scandir(os.path.join(root, folder)) as scan:
                entries = list(scan)
        except OSError:
            unreadable.append(File(folder, 0))
            continue
        names = {entry.name for entry in entries}
        if folder and names >= _HOME:
            continue
        if folder and _MARKS & names:
            caches.append(File(folder, 0))
            continue
        for entry in entries:
            path = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in NEVER:
                    folders.append(f"{path}/")
            else:
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    yield path, entry.stat(follow_symlinks=False)


def _find_changes(work: Path, before: Listing) -> _Changes:
    changes = _Changes([], [], [], [], [])
    for path, status in _walk(work, changes.unreadable, changes.caches):
        if before.get(path) == _identity(status):
            continue
        if stat.S_ISLNK(status.st_mode):
            if _stays_inside(work, path):
                changes.links.append(path)
        elif stat.S_ISREG(status.st_mode):
            file = File(path, status.st_size, status.st_mtime)
            (changes.secrets if holds_secrets(path) else changes.files).append(file)
    sent = folders_above(before if changes.caches else ())  # with the code
    made = [cache for cache in changes.caches if cache.path.rstrip("/") not in sent]
    return changes._replace(caches=made)


def _stays_inside(work: Path, path: str) -> bool:
    try:
        target = os.readlink(work / path)
    except OSError:
        return False
    lands = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return not os.path.isabs(target) and lands.split("/")[0] != ".."


def _move_all(
    mover: _Mover, files: Sequence[File], links: Sequence[str]
) -> tuple[list[File], list[Missed]]:
    """Return the files that are in the record now, and those that are not."""
    if not files:
        return [], []
    moved: list[File] = []
    failed: list[File] = []
    why = ""
    for number, file in enumerate(files):
        try:
            mover.move(file.path)
            moved.append(file)
        except OutOfTime:
            return moved, [Missed(Why.TIME, files[number:]), Missed(Why.FAILED, failed, why)]
        except OSError as error:
            why = why or (error.strerror or str(error)).lower()
            failed.append(file)
            if error.errno in _FATAL:
                failed += files[number + 1 :]
                break
    for path in links:
        with contextlib.suppress(OSError, OutOfTime):
            mover.move(path)
    return moved, [Missed(Why.FAILED, failed, why)]


class _Mover:
    """Moves files to the same paths below ``target``, which is in the ``record`` and created with
    the first of them; files that ``stay`` are linked, or copied. Ranks know these folders, and
    could have put links there: none is followed."""

    def __init__(
        self, work: Path, target: Path, record: str, tick: Callable[[], None], stay: bool
    ) -> None:
        self._work, self._target, self._tick, self._stay = work, target, tick, stay
        self._record, self._within = record, str(target.relative_to(record))
        self._is_made = False

    def move(self, path: str) -> None:
        self._tick()
        if not self._is_made:
            self._make()
        source, name = folder_trees.open_parent(self._work, path)
        try:
            target, _ = folder_trees.open_parent(self._record, f"{self._within}/{path}", make=True)
            try:
                self._move(name, source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _move(self, name: str, source: int, target: int) -> None:
        """From one open folder to another."""
        if not self._stay:
            with contextlib.suppress(OSError):
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
                return
        try:  # files of a read-only folder can still be linked
            os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        except OSError:
            if not _is_same(name, source, target):
                self._copy(name, source, target)

    def _make(self) -> None:
        folder_trees.make(self._record)
        for path in (self._target.parent, self._target):
            above, name = folder_trees.open_parent(
                self._record, str(path.relative_to(self._record)), make=True
            )
            try:
                with contextlib.suppress(OSError):
                    os.readlink(name, dir_fd=above)
                    os.unlink(name, dir_fd=above)
            finally:
                os.close(above)
        folder_trees.make_below(self._record, self._within)
        self._is_made = True

    def _copy(self, name: str, source: int, target: int) -> None:
        """Copy atomically; sparse files stay sparse."""
        with contextlib.suppress(OSError):  # not a link
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            return
        part = f".{os.urandom(8).hex()}.part"
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        written = os.open(part, flags | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=target)
        try:
            with (
                open(written, "wb") as copy,
                open(os.open(name, flags | os.O_NONBLOCK, dir_fd=source), "rb") as file,
            ):
                self._copy_data(file.fileno(), copy.fileno())
                status = os.fstat(file.fileno())
                os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
                os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            os.replace(part, name, src_dir_fd=target, dst_dir_fd=target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=target)

    def _copy_data(self, source: int, target: int) -> None:
        size, at = os.fstat(source).st_size, 0
        while at < size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # the rest of the file is a hole
            end = os.lseek(source, at, os.SEEK_HOLE)
            while at < end and (piece := os.pread(source, min(_PIECE, end - at), at)):
                self._tick()
                written = 0
                while written < len(piece):
                    written += os.pwrite(target, piece[written:], at + written)
                at += len(piece)
        os.ftruncate(target, size)


def _is_same(name: str, *folders: int) -> bool:
    """Whether the name is that of one file in these open folders."""
    with contextlib.suppress(FileNotFoundError):
        one, other = (os.stat(name, dir_fd=folder, follow_symlinks=False) for folder in folders)
        return os.path.samestat(one, other)
    return False
