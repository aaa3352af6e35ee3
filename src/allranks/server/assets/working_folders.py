"""The working sets of jobs: what the next attempt, and a restart, find in the working folder.

``jobs/JOB/working-folder/NODE`` of the home has a set in one of two forms. A `folder` (``work``,
and ``about/work.json``, which is written last) was taken from the folder of an agent that ended on
this disk: nothing is copied. A `state` was sent by the agent while it ran. Both are gone once the
job completes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import folder_trees
from allranks.core import amounts
from allranks.core.data import node_changes, working_set
from allranks.core.data.node_changes import GONE, Change, NodeChanges
from allranks.core.data.state_manifest import Entry, own, stays_inside
from allranks.core.data.working_set import (
    ABOUT,
    CHANGES,
    FILES,
    About,
    folders_above,
)
from allranks.core.job import code_packages
from allranks.core.job.continuation import File
from allranks.core.plan import Task
from allranks.errors import AllranksError, Conflict, UsageError
from allranks.server.assets.synced_folders import (
    SyncedFolders,
    commit,
    entry_of,
    require_live,
)
from allranks.server.assets.taken_folders import take
from allranks.settings import Home
from allranks.statuses import NodeState
from allranks.store.files.blobs import Blobs
from allranks.store.files.code_listing import CodeFile, code_files, contents
from allranks.store.files.state_folders import CONTENT, HEAD, INCOMING, VERSIONS, Put, State
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.agents import HeldSet, SyncAnswer
    from allranks.api.jobs import WorkingFolderAnswer

_UNFINISHED = "unfinished.json"
# Nodes whose ranks had ended before their agent did, so that no file was being written.
_ORDERLY = (NodeState.DRAINING, NodeState.EXITED)


def work_limit(environ: Mapping[str, str] = os.environ) -> int:
    """Bytes of a node's working set that the server holds, by ``ALLRANKS_WORK_LIMIT``. Raises
    UsageError."""
    text = environ.get("ALLRANKS_WORK_LIMIT", "").strip()
    try:
        return amounts.memory(text) if text else working_set.LIMIT
    except ValueError:
        raise UsageError(
            f"{text!r} is not a size",
            where="ALLRANKS_WORK_LIMIT",
            hint="a size with its unit, such as 50g",
        ) from None


class Carry(NamedTuple):
    """What a job gets of another one's working sets, and the notes for its submitter."""

    files: tuple[File, ...] = ()
    notes: tuple[str, ...] = ()


class _Set(NamedTuple):
    """A node's working set: ``entries`` by path, links as relative ones; ``content`` is the file
    with an entry's. ``changes``: those that were known as its last attempt began."""

    about: About
    entries: Mapping[str, Entry]
    content: Callable[[str, Entry], Path]
    changes: NodeChanges = NodeChanges()


class WorkingFolders(SyncedFolders):
    """The working sets of a home's jobs; ``limit``: the bound in bytes. Thread-safe."""

    def __init__(self, home: Home, blobs: Blobs, limit: int) -> None:
        super().__init__()
        self._jobs, self._nodes, self._blobs, self._limit = home.jobs, home.nodes, blobs, limit

    # ------------------------------------------------------------ agents

    def held(self, row: JobRow, node: int, own_disk: bool = False) -> HeldSet:
        """What the node's agent has to know when it begins; ``own_disk``: it does not see the home,
        and gets the set as a `state`. Raises OSError."""
        folder = self._folder(row.name) / str(node)
        if own_disk and _goes_on(row.plan.task) and (folder / ABOUT).exists():
            self._make_state(row, folder, node)
        form, unfinished = "", tuple[str, ...]()
        if _goes_on(row.plan.task) and os.path.exists(folder):
            is_state = (folder / HEAD).exists()
            form = "folder" if (folder / ABOUT).exists() else "state" if is_state else ""
            unfinished = _unfinished(folder) if form == "state" else ()
        return {
            "form": form,
            "unfinished": [*unfinished],
            "sends": _may_restart(row),
            "limit": self._limit,
        }

    def allowed(self, row: JobRow, launch: int, node: int) -> State:
        """The set that a node of the job may write. Raises Unauthorized for lost nodes and ended
        launches."""
        require_live(row, launch, node)
        return self._open(self._folder(row.name) / str(node))

    def may_write(self, path: str, node: int) -> bool:
        part, _, within = path.partition("/")
        return part == own(node) and (within.startswith(f"{FILES}/") or within in (ABOUT, CHANGES))

    def sync(self, row: JobRow, state: State, node: int, report: Mapping[str, Any]) -> SyncAnswer:
        """Commit a node's changes."""
        return commit(state, self._puts(row, node, report), report)

    def keep_torn(
        self, row: JobRow, state: State, node: int, report: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Keep what a killed rank left in part among the job's files, in the answer's folder."""
        folder = f"torn/attempt-{row.record.attempt}/node-{node}"
        for path, _, entry in self._puts(row, node, report):
            if (
                entry is None
                or entry.what != "file"
                or state.incoming.size(entry.sha256) is not None
            ):
                raise UsageError(f"the content of {path!r} is missing", hint="upload it first")
            target = self._jobs / row.name / folder / path.removeprefix(f"{own(node)}/{FILES}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # of an answer that the agent did not get
            os.link(state.content(entry.sha256), target)
        return {"folder": folder}

    def report_unfinished(self, row: JobRow, node: int, paths: list[str]) -> None:
        """Record which files of the node are being written."""
        folder = self._folder(row.name) / str(node)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder_trees.write_file(folder / _UNFINISHED, json.dumps(paths))

    # ------------------------------------------------------------ the loop

    def set_aside(self, row: JobRow, *, completed: bool) -> None:
        """Take the working sets from the folders of a launch's agents on this disk, once its
        processes have ended; of a completed job, delete them. Idempotent. Raises OSError."""
        task, code = row.plan.task, None
        root = self._folder(row.name)
        self.forget(row.name)  # its files may be removed
        if completed:
            folder_trees.remove(root, ignore_errors=True)
            return
        for node in range(task.nodes if _goes_on(task) else 0):
            source = self._nodes / row.key / str(node) / "working" / own(node) / FILES
            target = root / str(node)
            # Of a set that is still there the ranks have seen nothing.
            if (
                not source.is_dir()
                or (target / ABOUT).exists()
                or self._prefers_sent(row, node, source)
            ):
                continue
            code = self._code(task) if code is None else code
            take(source, target, code)

    def _make_state(self, row: JobRow, folder: Path, node: int) -> None:
        """Make a `state` of a set that is a `folder`. Idempotent."""
        self.forget(row.name)
        _drop_state(folder)
        work_set = self._load(row.name, folder, node)
        if work_set.about.over or work_set.about.trouble:
            work_set = work_set._replace(entries={})  # the agent says why it cannot continue
        _write(State(folder), work_set, work_set.changes, node)
        (folder / ABOUT).unlink()
        folder_trees.remove(folder / FILES, ignore_errors=True)

    def _prefers_sent(self, row: JobRow, node: int, source: Path) -> bool:
        """Whether the set that the agent sent is used: the agent was killed, and only complete
        files were sent."""
        record = row.record.nodes[node]
        # Without a place it was not ready, so no rank of this attempt has begun.
        orderly = record.left or record.state in _ORDERLY or record.place is None
        return not orderly and _may_restart(row) and self._is_sent(row, node, source)

    def forget(self, job: str) -> None:
        """Release the memory of a job's sets."""
        self._release(self._folder(job))

    def drop_sent(self, job: str) -> None:
        """Delete what agents of an ended job sent, where the server has the folder itself."""
        self.forget(job)
        for folder in _below(self._folder(job)):
            if (folder / ABOUT).exists():
                _drop_state(folder)

    def _code(self, task: Task) -> Mapping[str, CodeFile]:
        try:
            files = code_files(self._blobs, task.code)
        except AllranksError:
            return {}  # all files count as the ranks' own
        # Agents move the packages that came along out of the working folder.
        packages = f"{code_packages.FOLDER}/"
        return {path: file for path, file in files.items() if not path.startswith(packages)}

    # ------------------------------------------------------------ people

    def brief(self, row: JobRow) -> WorkingFolderAnswer | None:
        """The job's working sets as `job show` shows them; None if there are none."""
        files = [*self._files(row)]
        if not files:
            return None
        newest = max(files, key=lambda file: file.modified)
        checkpoints = [file for file in files if working_set.may_be_checkpoint(file.path)]
        return {
            "files": len(files),
            "size": sum(file.size for file in files),
            "newest": newest.path,
            "checkpoints": len(checkpoints),
        }

    def _files(self, row: JobRow) -> Iterator[File]:
        for folder in _below(self._folder(row.name)):
            node = int(folder.name)
            part = f"node-{node}/" if row.plan.task.nodes > 1 else ""
            if (folder / ABOUT).exists():
                for path, status in _walk(folder / FILES):
                    if stat.S_ISREG(status.st_mode):
                        yield _file(f"{part}{path}", status.st_size, status.st_mtime)
            elif (folder / HEAD).exists():
                for path, entry in self._sent(row.name, node).entries.items():
                    if entry.what == "file":
                        yield _file(f"{part}{path}", entry.size, entry.mtime_ns / 1e9)

    # ------------------------------------------------------------ restarts

    def carry(self, old: JobRow, task: Task, beside: Path) -> Carry:
        """Put copies of an ended job's sets into the folder ``beside`` of the new job ``task``.
        Where both changed the code, the new code wins. Raises Conflict for sets that are too large
        or damaged, and OSError."""
        if task.fresh_work or task.in_place or not _goes_on(old.plan.task):
            return Carry()
        files, notes = list[File](), list[str]()
        sets, changes = dict[int, _Set](), dict[int, NodeChanges]()
        for folder in _below(self._folder(old.name)):
            node = int(folder.name)
            carried = self._set(old, folder, node)
            carried, more = self._for_code(carried, old.plan.task.code, task.code)
            notes += more
            too_long = list[str]()
            if (folder / ABOUT).exists():
                deque(_walk(folder / FILES, too_long), maxlen=0)
            if too_long:
                notes.append(working_set.too_long_sentence(too_long))
            sets[node], changes[node] = carried, _changes(carried).as_earlier(old.record.attempt)
        notes += self._gather(sets, changes, task.nodes)
        for node, carried in sets.items():
            state = State(beside / working_set.RECORDED / str(node))
            if away := _write(state, carried, changes[node], node):
                notes.append(working_set.away_sentence(away))
            part = f"work/node-{node}/" if task.nodes > 1 else "work/"
            files += [
                _file(f"{part}{path}", entry.size, entry.mtime_ns / 1e9)
                for path, entry in carried.entries.items()
                if entry.what == "file"
            ]
        return Carry(tuple(files), tuple(dict.fromkeys(notes)))

    def _gather(
        self, sets: dict[int, _Set], changes: dict[int, NodeChanges], nodes: int
    ) -> list[str]:
        """Give the first of a job's ``nodes`` what only nodes changed that the job has not. Return
        what to say of it."""
        absent = {node: sets.pop(node) for node in [*sets] if node >= nodes}
        if not absent:
            return []
        first = sets.get(0, _Set(About(), {}, lambda path, _: Path(path)))
        mine = changes.setdefault(0, NodeChanges(0, 0))
        plan = node_changes.others(0, changes).from_node
        taken = {path: absent[node] for path, node in plan.items() if node in absent}
        made = {path: changes[plan[path]].paths[path] for path in taken}
        entries = {path: entry for path, entry in first.entries.items() if path not in made}
        come = [path for path, change in made.items() if change.what != GONE]
        for path in come:
            theirs = taken[path].entries
            above = {folder: theirs[folder] for folder in folders_above([path]) if folder in theirs}
            entries = {**above, **entries, path: theirs[path]}
        gone = {path for path, change in made.items() if change.what == GONE}
        sets[0] = _Set(
            first.about._replace(removed=tuple(sorted(gone.union(first.about.removed)))),
            entries,
            lambda path, entry: taken.get(path, first).content(path, entry),
        )
        changes[0] = mine._replace(paths={**mine.paths, **made})
        left = {
            f"{path} of node {node}"
            for node, gone_set in absent.items()
            for path in changes.pop(node).paths
            if path in gone_set.entries and taken.get(path) is not gone_set
        }
        return [working_set.absent_sentence([*absent], [*made], sorted(left))]

    def _set(self, old: JobRow, folder: Path, node: int) -> _Set:
        """Raises Conflict if it cannot be used, and OSError."""
        work_set = self._load(old.name, folder, node)
        about = work_set.about
        if about.over or about.trouble:
            why = about.trouble or working_set.too_large(about.over, self._limit)
            raise Conflict(
                f"{old.name} cannot be continued: {why}",
                hint="start with a clean working folder: --fresh-work"
                + ("; or raise ALLRANKS_WORK_LIMIT of the server" if about.over else ""),
            )
        return work_set

    def _load(self, job: str, folder: Path, node: int) -> _Set:
        """What there is of a node, without files if it cannot be used. Raises OSError."""
        if not (folder / ABOUT).exists():
            return self._sent(job, node)
        about, entries = About.load((folder / ABOUT).read_bytes()), dict[str, Entry]()
        if not about.trouble:
            size = sum(status.st_size for _, status in _walk(folder / FILES))
            about = about._replace(over=size if size > self._limit else 0)
        if not (about.over or about.trouble):
            entries = _entries(folder / FILES, about.folder)
        work_set = _Set(about, entries, lambda path, _: folder / FILES / path)
        return _with_changes(work_set, folder / CHANGES)

    def _for_code(
        self, carried: _Set, before: str | None, after: str | None
    ) -> tuple[_Set, tuple[str, ...]]:
        if before == after:
            return carried, ()
        removed = [path for path in carried.about.removed if not path.endswith("/")]
        folders = {path for path, entry in carried.entries.items() if entry.what == "folder"}
        paths = {*carried.entries, *removed}
        paths |= _in_the_way(code_files(self._blobs, after), carried.entries, folders)
        old = contents(self._blobs, before, paths)
        new = contents(self._blobs, after, paths)
        merged = working_set.merged(carried.entries, removed, old, new, folders)
        entries = {
            path: entry for path, entry in carried.entries.items() if path not in merged.left_out
        }
        about = carried.about._replace(removed=merged.removed)
        return carried._replace(about=about, entries=entries), merged.notes

    # ------------------------------------------------------------ inside

    def _folder(self, job: str) -> Path:
        return self._jobs / job / working_set.RECORDED

    def _is_sent(self, row: JobRow, node: int, source: Path) -> bool:
        """Whether the agent sent all that there was when the attempt began, in ``source``."""
        if not (self._folder(row.name) / str(node) / HEAD).exists():
            return False
        work_set = self._sent(row.name, node)
        rest = work_set.changes.paths.keys() - work_set.entries.keys()
        return not any(os.path.lexists(source / path) for path in rest)

    def _sent(self, job: str, node: int) -> _Set:
        """What the agent of a node has sent."""
        folder = self._folder(job) / str(node)
        start = f"{own(node)}/{FILES}/"
        state = self._states.get(folder) or State(folder)
        entries = state.entries()

        def content(name: str) -> Path:
            entry = entries.get(f"{own(node)}/{name}", Entry("file", "0" * 64))
            return state.content(entry.sha256)

        about = About()
        with contextlib.suppress(FileNotFoundError):
            about = About.load(content(ABOUT).read_bytes())
        files = {
            path.removeprefix(start): entry
            for path, entry in entries.items()
            if path.startswith(start)
        }
        work_set = _Set(about, files, lambda _, entry: state.content(entry.sha256))
        return _with_changes(work_set, content(CHANGES))


def _with_changes(work_set: _Set, file: Path) -> _Set:
    try:
        return work_set._replace(changes=NodeChanges.load(file.read_bytes()))
    except FileNotFoundError:
        return work_set
    except ValueError:
        trouble = "the list of what its ranks changed cannot be read"
        return work_set._replace(about=work_set.about._replace(trouble=trouble))


def _changes(work_set: _Set) -> NodeChanges:
    """All changes that a set tells of."""
    entries = work_set.entries
    there = {p: Change.of(entry) for p, entry in entries.items() if entry.what != "folder"}
    removed = (path for path in work_set.about.removed if not path.endswith("/"))
    gone = {*removed, *work_set.changes.paths} - there.keys()
    return NodeChanges(paths=node_changes.changes_since(work_set.changes, there, gone))


def _drop_state(folder: Path) -> None:
    """Remove what an agent has sent."""
    for name in (HEAD, _UNFINISHED):
        (folder / name).unlink(missing_ok=True)
    for name in (CONTENT, INCOMING, VERSIONS):
        folder_trees.remove(folder / name, ignore_errors=True)


def _goes_on(task: Task) -> bool:
    return not (task.fresh_work or task.in_place)


def _may_restart(row: JobRow) -> bool:
    return row.plan.rules.max_attempts > 1 and _goes_on(row.plan.task)


def _unfinished(folder: Path) -> tuple[str, ...]:
    with contextlib.suppress(FileNotFoundError):
        return tuple(json.loads((folder / _UNFINISHED).read_bytes()))
    return ()


def _below(root: Path) -> list[Path]:
    """The folders of a job's nodes, in order."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        numbers = [int(name) for name in os.listdir(root) if name.isdecimal()]
        return [root / str(number) for number in sorted(numbers)]
    return []


def _file(path: str, size: int, modified: float) -> File:
    # A name that is not UTF-8 cannot be recorded as it is.
    return File(os.fsencode(path).decode(errors="replace"), size, modified)


def _in_the_way(code: Iterable[str], paths: Collection[str], folders: set[str]) -> set[str]:
    """The files of the code that cannot be beside these paths, because one is in the other."""
    above = folders_above(paths)
    files = {*paths}.difference(folders)
    return {path for path in code if path in above or not files.isdisjoint(folders_above([path]))}


# ---------------------------------------------------------------- copying a set


def _walk(root: Path, left_out: list[str] | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a folder, by relative path. What has too long a path is added to
    ``left_out``. Raises OSError."""
    folders = [""] if root.is_dir() else []
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = folder + entry.name
                too_long = len(os.fsencode(path)) > folder_trees.LONGEST
                if too_long or folder_trees.is_too_long(entry.path):
                    if left_out is not None:
                        left_out.append(path)
                    continue
                yield path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")


def _entries(root: Path, was: str) -> dict[str, Entry]:
    """The entries of a folder that was taken; its agent had it as ``was``. Raises OSError."""
    made = ((path, entry_of(root / path, status, root)) for path, status in _walk(root))
    return {
        path: entry._replace(target=_within(path, entry.target, was)) if entry.target else entry
        for path, entry in made
        if entry is not None
    }


def _write(state: State, carried: _Set, changes: NodeChanges, node: int) -> list[str]:
    """Make a state of a set, which shares the contents: nobody writes to either. Returns the links
    that are left out, because they lead elsewhere. Raises OSError."""
    if not carried.entries and carried.about._replace(folder="") == About():
        return []
    puts = list[Put]()
    away = list[str]()
    (state.folder / CONTENT).mkdir(parents=True, mode=0o700)
    for path, entry in carried.entries.items():
        full = f"{own(node)}/{FILES}/{path}"
        if entry.what == "link" and not stays_inside(full, entry.target):
            away.append(path)
            continue
        if entry.what == "file" and not (target := state.content(entry.sha256)).exists():
            source = carried.content(path, entry)
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)
        puts.append(Put(full, 0, entry))
    for name, data in ((ABOUT, carried.about.dump()), (CHANGES, changes.dump())):
        sha256 = hashlib.sha256(data).hexdigest()
        state.content(sha256).write_bytes(data)
        puts.append(Put(f"{own(node)}/{name}", 0, Entry("file", sha256, len(data), 0, 0o644)))
    state.commit(puts)
    return away


def _within(path: str, target: str, folder: str) -> str:
    """An absolute target inside the old working folder as a relative one."""
    within = target.removeprefix(f"{folder}/")
    if within == target:
        return target
    return os.path.relpath(within, os.path.dirname(path) or ".")
