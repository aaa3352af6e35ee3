"""The files of jobs whose nodes do not share the disk of the home: received from each node, and
placed in the job's record when they are complete.

A node's files are synchronized as its state is. Until the job ends, the server keeps each node's
latest files by content, so that the next launch of the node finds them; the record has hard links,
or copies if nodes on the disk of the home write to it as well. What such nodes wrote is copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from allranks import folder_trees
from allranks.core.data.node_files import is_for_all, may_write
from allranks.core.data.state_manifest import Entries, Entry, own, stays_inside
from allranks.core.data.working_set import ELSEWHERE
from allranks.core.job.output_places import on_server
from allranks.core.plan import Task
from allranks.errors import MissingCode, NotFound, UsageError
from allranks.events import Kind
from allranks.server.assets import others_outputs
from allranks.server.assets.others_outputs import HOME
from allranks.server.assets.synced_folders import (
    SyncedFolders,
    commit,
    entry_of,
    require_live,
)
from allranks.settings import Home
from allranks.statuses import TERMINAL
from allranks.store.files.blobs import Blobs
from allranks.store.files.code_listing import code_files
from allranks.store.files.state_folders import HEAD, Put, State
from allranks.store.files.trees import copy_contents
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.agents import SyncAnswer

log = logging.getLogger("allranks.files")

# In the folder with the files of a job's nodes: some node has written to the home instead.
_WRITTEN = "written"
# Another node's file or folder of that name is in the way.
_IN_THE_WAY = (errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST)
# A rank has replaced or removed a file, or a folder above it, while it was read.
_REPLACED = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO)
# Nodes that get the others' files at once: each takes a thread of those that answer people.
_TURNS = 4


def files_of(job: str) -> str:
    """The name of the folder with the files of a job's nodes."""
    return f"{job}.files"


class NodeFiles(SyncedFolders):
    """The files that nodes of live jobs have sent. Thread-safe. Beside the working folders, where
    those of ended jobs are collected as garbage."""

    def __init__(self, home: Home, records: Records, blobs: Blobs, limit: int) -> None:
        super().__init__()
        self._nodes, self._jobs, self._records = home.nodes, home.jobs, records
        self._blobs, self._limit = blobs, limit
        self._data = home.data  # may be a link to a larger disk
        # The attempt in which each node's files last had the others'.
        self._given: dict[Path, int] = {}
        # Of a job while its attempt begins, and of each of its nodes.
        self._giving = dict[Path, threading.Lock]()
        self._turns = asyncio.Semaphore(_TURNS)

    def allowed(self, row: JobRow, launch: int, node: int) -> State:
        """The files that a node of the job may write. Raises Unauthorized for lost nodes and ended
        launches, and UsageError for nodes that share the disk."""
        require_live(row, launch, node)
        if not row.plan.task.is_received:
            raise UsageError("the nodes of this job share the server's disk", hint="leave it out")
        return self._open(self._folder(row) / str(node))

    def may_write(self, path: str, node: int) -> bool:
        return path.startswith(f"{own(node)}/") and may_write(_within(path), node)

    def begin(self, task: Task, record: Path, entries: Entries) -> None:
        """Give all nodes of a new job the files that its record starts with: nobody knows which
        node wrote which. Raises OSError."""
        self.delete(task.job)
        states = [State(self._nodes / files_of(task.job) / str(n)) for n in range(task.nodes)]
        for node, state in enumerate(states):
            entries = _fill(state, node, record, entries, states[0] if node else None)
            others_outputs.take_as_copies(state, node)

    def note_start(self, row: JobRow, node: int, own_disk: bool) -> None:
        """A node of the launch starts, on a disk of its own or on that of the home. Raises
        OSError."""
        if not row.plan.task.may_send:
            return
        mark = self._nodes / row.key / str(node) / ELSEWHERE if own_disk else self._written(row)
        mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark.touch()

    def delete(self, job: str) -> None:
        """Delete what is kept of a job's nodes."""
        shutil.rmtree(self._nodes / files_of(job), ignore_errors=True)

    def are_known(self, row: JobRow) -> bool:
        """Whether there are files of an earlier launch, or of the job that this one continues."""
        return row.plan.task.is_received and any(self._folder(row).glob(f"*/{HEAD}"))

    def sync(self, row: JobRow, state: State, node: int, report: Mapping[str, Any]) -> SyncAnswer:
        """Give a node the others' files, and take its changes. Those that another node's file
        prevents are left out."""
        try:
            return self._sync(row, state, node, report)
        finally:
            if self._states.get(state.folder) is not state:
                self.forget(row)  # it ended meanwhile

    def _sync(self, row: JobRow, state: State, node: int, report: Mapping[str, Any]) -> SyncAnswer:
        """Place changes in the record, then commit them: a server that is killed in between gets
        them again."""
        puts, was = self._puts(row, node, report), state.revision
        self._give(row, state, node)
        for path, _, entry in puts:
            if entry and entry.what == "file" and not state.content(entry.sha256).exists():
                raise MissingCode(f"the content of {path!r} is missing", hint="upload it first")
        entries = state.entries()
        placed = list[Put]()
        for put in puts:
            old = entries.get(put.path)
            if (old.seq if old else 0) == put.base and self._place(row, state, put, old):
                placed.append(put)
        answer = commit(state, placed, report)
        answer["was"] = was
        return answer

    def turn(self, row: JobRow, state: State) -> contextlib.AbstractAsyncContextManager[None]:
        """To await before ``sync`` takes a thread."""
        return self._turns if self._lacks(row, state) else contextlib.nullcontext()

    def _lacks(self, row: JobRow, state: State) -> bool:
        """Whether a node does not have the others' outputs of this attempt yet."""
        is_first = row.record.attempt == 1 or row.plan.task.nodes == 1
        return not is_first and self._given.get(state.folder) != row.record.attempt

    def _give(self, row: JobRow, state: State, node: int) -> None:
        """Give a node the others' outputs, before its ranks start. Raises Conflict if they are too
        large, and OSError."""
        if not self._lacks(row, state):
            return
        attempt, task, folder = row.record.attempt, row.plan.task, self._folder(row)
        notes = list[str]()
        if row.record.went_at is None:
            states = {n: self._open(folder / str(n)) for n in range(task.nodes)}
            if self._written(row).exists():
                states[HOME] = self._open(folder / "home")
            with self._alone(folder):
                if others_outputs.begun(folder) < attempt:
                    removed = self._take_home(row, states) if HOME in states else set[str]()
                    code = code_files(self._blobs, task.code)
                    with self._alone(*(other.folder for other in states.values())):
                        others_outputs.begin(folder, states, attempt, code, removed)
            with self._alone(state.folder):
                notes = others_outputs.give(folder, states, node, self._limit, _link)
        else:  # perhaps its ranks were started under an earlier version
            others_outputs.take_as_copies(state, node, attempt)
        with self._lock:
            if self._states.get(state.folder) is state:
                self._given[state.folder] = attempt
        for message in notes:
            data = {"about": "files", "message": message}
            self._records.append(row.name, [row.event(Kind.NOTE, node=node, data=data)])

    @contextlib.contextmanager
    def _alone(self, *folders: Path) -> Iterator[None]:
        with self._lock:
            locks = [self._giving.setdefault(path, threading.Lock()) for path in folders]
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            yield

    def _take_home(self, row: JobRow, states: Mapping[int, State]) -> set[str]:
        """Take what nodes on the disk of the home have written to the record, as if a node had sent
        it. Return what they removed there. Raises OSError."""
        home, record = states[HOME], self._jobs / row.name
        sent = dict[str, list[Entry]]()
        for node, state in states.items():
            for path, entry in others_outputs.entries_of(state, node).items():
                sent.setdefault(path, []).append(entry)

        def is_new(path: str, status: os.stat_result) -> bool:
            now = (status.st_size, status.st_mtime_ns)
            same = (now == (entry.size, entry.mtime_ns) for entry in sent.get(path, ()))
            return is_for_all(path) and not any(same)

        new = files_in(record, is_new)
        mine = {p: e for p, e in new.items() if not any(map(e.is_as, sent.get(p, ())))}
        _fill(home, HOME, record, mine)
        removed = {
            path
            for path in sent
            if not on_server(row.plan.task, path).in_store and not os.path.lexists(record / path)
        }
        entries = home.entries()
        paths = entries.keys() & {f"{own(HOME)}/{path}" for path in removed}
        home.commit([Put(path, entries[path].seq, None) for path in paths])
        return removed

    def forget(self, row: JobRow) -> None:
        """Release what was kept for the next launch, if the job has ended."""
        if not row.plan.task.is_received:
            return
        with contextlib.suppress(NotFound):  # it was deleted
            if self._records.get(row.name).record.status not in TERMINAL:
                return
        folder = self._folder(row)
        released = self._release(folder)
        with self._lock:
            for each in (*released, folder):
                self._given.pop(each, None)
                self._giving.pop(each, None)
        self.delete(row.name)

    def _folder(self, row: JobRow) -> Path:
        return self._nodes / files_of(row.name)

    def _written(self, row: JobRow) -> Path:
        return self._folder(row) / _WRITTEN

    def _place(self, row: JobRow, state: State, put: Put, was: Entry | None) -> bool:
        """Do a change in the record; False if that is not possible."""
        place, entry = on_server(row.plan.task, _within(put.path)), put.entry
        if place.in_store and entry is not None and entry.what == "link":
            within = f"output/{place.within}" if place.within else ""
            if not stays_inside(within, entry.target):  # in the store others are beside it
                return False
        root = self._data.resolve() if place.in_store else self._jobs / row.name
        make = entry is not None
        try:
            if make:
                root.mkdir(exist_ok=True, mode=0o700)
            with _beside(state, entry, self._written(row).exists()) as beside:
                above, name = folder_trees.open_parent(root, place.path, make)
                try:
                    # One node after another: what one puts there is no change that others keep.
                    alone = self._alone(self._folder(row))
                    with alone, folder_trees.same_time(folder_trees.by_descriptor(above)):
                        if entry is None or (was is not None and was.what != entry.what):
                            _remove(above, name, was, state)
                        if entry is not None and beside is None:
                            _make_folder(above, name, entry.mtime_ns)
                        elif beside is not None:
                            _rename(beside, above, name)
                finally:
                    os.close(above)
        except FileNotFoundError:
            return put.entry is None
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            log.warning("%s: something is in the way of %r", row.name, put.path)
            return False
        return True


def _fill(
    state: State, node: int, record: Path, entries: Entries, first: State | None = None
) -> Entries:
    """Give a node files of the record, which the ``first`` may have already. Return those that did
    not change meanwhile. Raises OSError."""
    before, same = state.entries(), dict[str, Entry]()
    for within, entry in entries.items():
        content = state.content(entry.sha256) if entry.what == "file" else None
        if content is not None and first is not None:
            _link(first.content(entry.sha256), content, entry)
        elif content is not None and not content.exists():
            try:
                with folder_trees.open_file(record / within, below=record) as file:
                    _copy(file, content, entry)
            except OSError as error:
                if error.errno not in _REPLACED:
                    raise
                continue
        same[within] = entry
    paths = {f"{own(node)}/{within}": entry for within, entry in same.items()}
    state.commit([Put(p, before[p].seq if p in before else 0, e) for p, e in paths.items()])
    return same


def files_in(
    record: Path, only: Callable[[str, os.stat_result], bool] = lambda path, status: True
) -> dict[str, Entry]:
    """The files in a record that a node may have, or ``only`` some, without those that ranks
    replace meanwhile. Raises OSError."""
    entries = dict[str, Entry]()
    for above, folders, files in folder_trees.walk(record):
        for place in (Path(above, name) for name in sorted(folders + files)):
            path = str(place.relative_to(record))
            try:
                if not may_write(path, 0) or not only(path, status := place.lstat()):
                    continue
                entry = entry_of(place, status, record)
            except OSError as error:
                if error.errno not in _REPLACED:
                    raise
                continue
            if entry is None:
                continue
            if entry.what != "link" or stays_inside(f"{own(0)}/{path}", entry.target):
                entries[path] = entry
    return entries


def _within(path: str) -> str:
    """The path in the record of a path in the node's part."""
    return path.partition("/")[2]


@contextlib.contextmanager
def _beside(state: State, entry: Entry | None, written: bool) -> Iterator[Path | None]:
    """The file or link of an entry, to be renamed; ``written``: others may write to the file in
    place. Not in the record: what a killed server leaves here goes when the job ends."""
    if entry is None or entry.what == "folder":
        yield None
        return
    beside = state.folder / f".{secrets.token_hex(8)}.part"
    state.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        if entry.what == "link":
            beside.symlink_to(entry.target)
        else:
            _link(state.content(entry.sha256), beside, entry, written)
        yield beside
    finally:
        # Also after a rename of two links to one file, which does nothing.
        beside.unlink(missing_ok=True)


def _rename(beside: Path, above: int, name: str) -> None:
    try:
        os.rename(beside, name, dst_dir_fd=above)
    except OSError as error:
        if error.errno != errno.EXDEV:  # the record is on another disk
            raise
        there = Path(f"/proc/self/fd/{above}", beside.name)
        shutil.copy2(beside, there, follow_symlinks=False)
        os.rename(there, name, dst_dir_fd=above)


def _make_folder(above: int, name: str, mtime_ns: int) -> None:
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        status = os.lstat(name, dir_fd=above)
        if not stat.S_ISDIR(status.st_mode):
            raise
        mtime_ns = max(mtime_ns, status.st_mtime_ns)  # other nodes may write to it, too
    if mtime_ns:
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=above, follow_symlinks=False)


def _link(content: Path, target: Path, entry: Entry, copied: bool = False) -> None:
    """Link a content, or copy it where that is not possible, or where a file of another mode or
    time has that content: links share them. To a content that is there already, do nothing. Raises
    OSError: FileNotFoundError also for a damaged one."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode, now = entry.mode & 0o777 | 0o600, content.stat()
    same = (stat.S_IMODE(now.st_mode), now.st_mtime_ns) == (mode, entry.mtime_ns)
    try:
        if copied or (now.st_nlink > 1 and not same):
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        os.link(content, target)
    except OSError:  # see above; or too many links to it, or a file system without links
        with content.open("rb") as file:
            _copy(file, target, entry)
        return
    target.chmod(mode)
    os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))


def _copy(file: BinaryIO, target: Path, entry: Entry) -> None:
    """Copy an entry's content. Raises OSError: FileNotFoundError if it is another one."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with beside.open("x+b") as copy:
            copy_contents(file, copy, entry.size)
            copy.seek(0)
            if hashlib.file_digest(copy, "sha256").hexdigest() != entry.sha256:
                raise FileNotFoundError(errno.ENOENT, "not the content", str(target))
        beside.chmod(entry.mode & 0o777 | 0o600)
        os.utime(beside, ns=(entry.mtime_ns, entry.mtime_ns))
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _remove(above: int, name: str, was: Entry | None, state: State) -> None:
    """Remove what this node placed; what another node placed there since stays."""
    if was is None:
        return
    try:
        status = os.lstat(name, dir_fd=above)
    except FileNotFoundError:
        return
    if was.what == "folder":
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=above)
    elif was.what == "link":
        if stat.S_ISLNK(status.st_mode) and os.readlink(name, dir_fd=above) == was.target:
            os.unlink(name, dir_fd=above)
    elif _is_content(status, was, state):
        os.unlink(name, dir_fd=above)


def _is_content(status: os.stat_result, was: Entry, state: State) -> bool:
    with contextlib.suppress(FileNotFoundError):
        content = state.content(was.sha256).stat()
        if (content.st_dev, content.st_ino) == (status.st_dev, status.st_ino):
            return True
    # A copy.
    return (status.st_size, status.st_mtime_ns) == (was.size, was.mtime_ns)
