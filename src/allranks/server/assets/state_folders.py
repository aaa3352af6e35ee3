"""State folders of jobs: whose is whose, what agents tell of them, and when a version is made."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allranks.errors import Conflict, NotFound, Unauthorized, UsageError
from allranks.plan.data import state_manifest
from allranks.plan.data.state_manifest import Entries, Entry, Quiet
from allranks.plan.plan import Task
from allranks.settings import Home
from allranks.statuses import TERMINAL, NodeState
from allranks.store.files.state_folders import HEAD, NAMED, OF_JOBS, Put, State, matches, seed
from allranks.store.job_rows import JobRow
from allranks.store.records import Records

# So many that nobody writes are in memory with all that they hold: those looked at last.
_AT_HAND = 8
# How often a state that is being written is copied anew.
_TRIES = 5


class _Watched(NamedTuple):
    """An attempt, and what its nodes have told."""

    job: str
    attempt: int
    quiet: dict[int, Quiet]


class States:
    """Those of a home. From any thread."""

    def __init__(self, home: Home, records: Records) -> None:
        self._root, self._records = home.states, records
        self._states: dict[Path, State] = {}
        self._watched: dict[Path, _Watched] = {}
        self._lock = threading.Lock()
        self._count = itertools.count(1)

    # ------------------------------------------------------------ whose is whose

    def of(self, row: JobRow) -> State:
        """A job's: the one it names, or its own."""
        named = row.plan.task.state
        return self._open(NAMED, named) if named else self._open(OF_JOBS, row.name)

    def is_known(self, row: JobRow) -> bool:
        """Whether a job's has ever had anything in it."""
        return (self.of(row).folder / HEAD).exists()

    def find(self, name: str) -> State:
        """The one of that name, or the own one of a job of that name. Raises NotFound."""
        can_be = "/" not in name and len(name.encode(errors="replace")) < 256
        for kind in (NAMED, OF_JOBS):
            if can_be and (self._root / kind / name / HEAD).exists():
                return self._open(kind, name)
        hint = "`allranks state list` shows those with a name, with --own those of jobs"
        raise NotFound(f"there is no state named {name[:80]!r}", hint=hint)

    def several(self, own: bool) -> Iterator[State]:
        """Those with a name, or the own ones of jobs that have something in them, by name."""
        kind = OF_JOBS if own else NAMED
        for each in sorted((self._root / kind).glob(f"[!.]*/{HEAD}")):
            yield self._open(kind, each.parent.name)

    def is_own(self, state: State) -> bool:
        """Whether it is a job's own."""
        return state.folder.parent.name == OF_JOBS

    def holder(self, state: State) -> JobRow | None:
        """The live job that has it: of those that want it the one that came first."""
        return next((row for row in self._records.live() if self._is_of(row, state)), None)

    def waits(self, row: JobRow) -> str:
        """For which live job a job has to wait, in words, because both have one state."""
        first = self.holder(self.of(row)) if row.plan.task.state else None
        if first is None or first.id >= row.id:
            return ""
        return f"waits for the job {first.name}, which has the state {row.plan.task.state}"

    def begin(self, task: Task, after: JobRow | None) -> Entries:
        """Let the own state of a job to come be empty, or begin as that of one that has ended is
        now; what the job finds of the one ``after`` which it comes. What is there was of a job that
        the record has not, or never came to be."""
        folder = self._root / OF_JOBS / task.job
        if folder.exists():
            self._open(OF_JOBS, task.job).delete()
        if after is None:
            return {}
        if task.state:
            return self.of(after).entries() if after.plan.task.state == task.state else {}
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in range(_TRIES):
            # Another job may have a state with a name by now, and replace what is being linked.
            with contextlib.suppress(FileNotFoundError):
                seed(folder, self.of(after))
                return self._open(OF_JOBS, task.job).entries()
        hint = f"wait for the job that writes it, or copy it: allranks state download {after.name}"
        raise Conflict(f"the state of {after.name} changes while it is copied", hint=hint)

    def brief(self, row: JobRow) -> dict[str, Any]:
        """What is told of a job's with the job."""
        state = self.of(row)
        newest = state.newest() if self.is_known(row) else None
        own = not row.plan.task.state
        return {
            "name": state.folder.name,
            "own": own,
            "version": newest.number if newest else None,
        }

    # ------------------------------------------------------------ agents

    def allowed(self, row: JobRow, launch: int, node: int) -> State:
        """The state of a node that is one of the job's. Raises Unauthorized for any other: what
        comes late, of one that was given up, changes nothing."""
        job = row.record
        if job.status in TERMINAL or launch != job.launch or not node < len(job.nodes):
            raise Unauthorized("this launch is over for this node", hint="leave")
        if job.nodes[node].left or job.nodes[node].state is NodeState.LOST:
            raise Unauthorized("this node was given up", hint="leave")
        return self.of(row)

    def sync(self, row: JobRow, state: State, node: int, told: Mapping[str, Any]) -> dict[str, Any]:
        """Take in what a node has changed, and tell it what there is now."""
        attempt = int(told["attempt"])
        if attempt != row.record.attempt:
            raise Conflict("another attempt has the state", hint="leave it alone")
        self._begin(row, state, attempt)
        made = state.commit([_put(each, node) for each in told["puts"]])
        due = self._note(row, state, node, bool(told["same"]), bool(told["over"]))
        answer = {"revision": made.after, "done": made.done, "entries": None, "due": due}
        if made.before != told["after"]:
            answer["entries"] = state_manifest.pack(made.entries)
        return answer

    def _begin(self, row: JobRow, state: State, attempt: int) -> None:
        """What the attempt before has left is a version, however it ended."""
        with self._lock:
            known = self._watched.get(state.folder)
            if known is not None and known[:2] == (row.name, attempt):
                return
            self._watched[state.folder] = _Watched(row.name, attempt, {})
        if known is not None or attempt > 1 or row.plan.task.state:
            state.keep(row.name if attempt > 1 else "", attempt - 1, "was left")

    def _note(self, row: JobRow, state: State, node: int, same: bool, over: bool) -> bool:
        """Note what a node tells of itself, and make a version if that is whole now; whether there
        is one to be made as soon as it is."""
        with self._lock:
            quiet = self._watched[state.folder].quiet
            quiet[node] = state_manifest.heard(quiet.get(node), next(self._count), same, over)
            whole = state_manifest.is_whole(quiet, row.plan.task.nodes)
            ended = len(quiet) == row.plan.task.nodes and all(q.over for q in quiet.values())
        newest = state.newest()
        if not state.has_changes():
            return False
        recent = newest is not None and time.time() - newest.at < state_manifest.PAUSE
        if not whole or (recent and not ended):
            return True
        why = "an attempt ended" if ended else "nobody was writing"
        state.keep(row.name, row.record.attempt, why)
        return False

    def forget(self, row: JobRow) -> None:
        """If a job has ended, what it has left is a version, and nothing is kept in memory."""
        try:
            state, row = self.of(row), self._records.get(row.name)
        except NotFound:
            return  # deleted meanwhile, with its own state
        if row.record.status not in TERMINAL or not self.is_known(row):
            return
        with self._lock:
            known = self._watched.get(state.folder)
            if known is not None and known.job != row.name:
                return  # another began meanwhile, with a version of what this one had left
            state.keep(row.name, row.record.attempt, "was left")
            self._watched.pop(state.folder, None)
            if not row.plan.task.state:
                self._states.pop(state.folder, None)
        state.unload()

    def drop(self, job: str) -> None:
        """Remove the own state of a job that is deleted, if it has one."""
        if (self._root / OF_JOBS / job).exists():
            self._open(OF_JOBS, job).delete()

    def rest(self, job: str) -> None:
        """A job's own was taken away, or will not be asked for: nothing of it is remembered."""
        self._open(OF_JOBS, job).unload()

    # ------------------------------------------------------------ people

    def settled(self, name: str) -> State:
        """The state of that name; what nobody writes any more is a version. Raises NotFound."""
        state = self.find(name)
        if self.holder(state) is None:
            state.keep("", 0, "was left")
        return state

    def last_job(self, name: str) -> str:
        """The one that had the state of that name last, by its versions; empty where none tells.
        Raises NotFound."""
        state = self.find(name)
        if self.is_own(state):
            return name
        return next((each.job for each in reversed(state.versions()) if each.job), "")

    def restore(self, name: str, number: int) -> None:
        """Have what is there be what it was in a version; that is the newest then. Raises NotFound,
        and Conflict while a job has it, or where a content of the version is damaged."""
        state = self.free(name)
        for path, each in state.version(number).entries.items():
            if each.what == "file" and not matches(state.content(each.sha256), each.sha256):
                raise Conflict(
                    f"{path!r} of version {number} is damaged in the server's home",
                    where=str(state.content(each.sha256)),
                    hint=f"take another version: allranks state show {name}",
                )
        state.keep("", 0, "was left")
        state.restore(number)
        state.keep("", 0, f"version {number}, restored")

    def delete(self, name: str) -> None:
        """Take it away with all of its versions. Raises NotFound, and Conflict while a job has
        it."""
        self.free(name).delete()

    def free(self, name: str) -> State:
        """The state of that name, which no job has. Raises NotFound and Conflict."""
        state = self.find(name)
        if (row := self.holder(state)) is not None:
            raise Conflict(
                f"the job {row.name} has the state {name} and has not ended",
                hint=f"wait for it, or: allranks job cancel {row.name}",
            )
        return state

    def _is_of(self, row: JobRow, state: State) -> bool:
        named = row.plan.task.state
        kind, name = (NAMED, named) if named else (OF_JOBS, row.name)
        return state.folder == self._root / kind / name

    def _open(self, kind: str, name: str) -> State:
        folder = self._root / kind / name
        with self._lock:
            # Never another one of the same folder: theirs is the lock that keeps it in order.
            state = self._states.setdefault(folder, State(folder))
            self._states[folder] = self._states.pop(folder)  # the last
            late = [*self._states.values()][-_AT_HAND - 1 : -_AT_HAND]
            late = [each for each in late if each.folder not in self._watched]
        for each in late:
            each.unload()
        return state


def _put(told: Mapping[str, Any], node: int) -> Put:
    """What a node has changed. Raises UsageError for what is not its to change."""
    path, given, hint = told["path"], told["entry"], "leave it out"
    if not state_manifest.is_path(path, node):
        raise UsageError(f"{str(path)[:255]!r} is no path that a node may write", hint=hint)
    entry = None if given is None else Entry(*given)
    if entry is not None and not _is_entry(entry):
        raise UsageError(f"{path!r} is no file, folder or link", hint=hint)
    if (
        entry is not None
        and entry.what == "link"
        and not state_manifest.stays_inside(path, entry.target)
    ):
        raise UsageError(f"{path!r} is a link that leads elsewhere", hint=hint)
    return Put(path, int(told["base"]), entry)


def _is_entry(entry: Entry) -> bool:
    numbers = (entry.size, entry.mtime_ns, entry.mode, entry.seq)
    plain = all(type(each) is int and abs(each) < 2**63 for each in numbers) and entry.size >= 0
    texts = isinstance(entry.sha256, str) and isinstance(entry.target, str)
    return plain and texts and entry.what in ("file", "folder", "link")
