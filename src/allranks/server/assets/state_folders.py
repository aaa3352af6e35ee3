"""State folders of jobs: which job has which one, agents' changes, and when versions are made."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.core.data import state_versions
from allranks.core.data.state_manifest import Entries
from allranks.core.data.state_versions import Quiet
from allranks.core.plan import Task
from allranks.errors import Conflict, NotFound
from allranks.server.assets.synced_folders import SyncedFolders, commit, require_live
from allranks.settings import Home
from allranks.statuses import TERMINAL
from allranks.store.files.state_folders import (
    HEAD,
    NAMED,
    OF_JOBS,
    State,
    matches,
    seed,
)
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.agents import SyncAnswer
    from allranks.api.jobs import StateOfJob

# How many idle states are kept in memory, the most recently used ones.
_IDLE_STATES = 8
# Attempts to copy a state that changes meanwhile.
_TRIES = 5


class _Watched(NamedTuple):
    """The attempt that writes a state, and what its nodes reported last."""

    job: str
    attempt: int
    quiet: dict[int, Quiet]


class States(SyncedFolders):
    """The state folders of a home. Thread-safe."""

    def __init__(self, home: Home, records: Records) -> None:
        super().__init__()
        self._root, self._records = home.states, records
        self._watched: dict[Path, _Watched] = {}
        self._count = itertools.count(1)

    # ------------------------------------------------------------ finding states

    def of(self, row: JobRow) -> State:
        """The state of a job: the one it names, or its own."""
        return self._named(*_place(row))

    def is_known(self, row: JobRow) -> bool:
        """Whether the job's state has ever had content."""
        # Without `of`: most jobs have none, and their states need no memory.
        return os.path.exists(os.path.join(self._root, *_place(row), HEAD))

    def find(self, name: str) -> State:
        """The named state, or the own state of the job of that name. Raises NotFound."""
        is_name = "/" not in name and len(name.encode(errors="replace")) < 256
        for kind in (NAMED, OF_JOBS):
            if is_name and (self._root / kind / name / HEAD).exists():
                return self._named(kind, name)
        hint = (
            "list named states: allranks state list; own states of jobs: allranks state list --own"
        )
        raise NotFound(f"no state named {name[:80]!r}", hint=hint)

    def several(self, own: bool) -> Iterator[State]:
        """The named states, or the own states of jobs, sorted by name."""
        kind = OF_JOBS if own else NAMED
        for head in sorted((self._root / kind).glob(f"[!.]*/{HEAD}")):
            yield self._named(kind, head.parent.name)

    def is_own(self, state: State) -> bool:
        return state.folder.parent.name == OF_JOBS

    def holder(self, state: State) -> JobRow | None:
        """The live job that uses the state: the oldest of those that name it. None: no job."""
        return next((row for row in self._records.live() if self._is_of(row, state)), None)

    def waits(self, row: JobRow) -> str:
        """Why the job must wait for another one with the same state; empty if it need not."""
        first = self.holder(self.of(row)) if row.plan.task.state else None
        if first is None or first.id >= row.id:
            return ""
        return f"waits for the job {first.name}, which uses the state {row.plan.task.state}"

    def begin(self, task: Task, after: JobRow | None) -> Entries:
        """Create the own state of a new job, empty or as a copy of that of ``after``, the ended job
        it continues. Returns the entries that the job starts with. An existing folder belongs to no
        recorded job and is deleted."""
        folder = self._root / OF_JOBS / task.job
        if folder.exists():
            self._named(OF_JOBS, task.job).delete()
        if after is None:
            return {}
        if task.state:
            return self.of(after).entries() if after.plan.task.state == task.state else {}
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in range(_TRIES):
            # Another job may use a named state by now, and replace files that are being linked.
            with contextlib.suppress(FileNotFoundError):
                seed(folder, self.of(after))
                return self._named(OF_JOBS, task.job).entries()
        hint = f"wait for the job that writes it, or copy it: allranks state download {after.name}"
        raise Conflict(f"the state of {after.name} changed while it was copied", hint=hint)

    def brief(self, row: JobRow) -> StateOfJob:
        """The job's state as `job show` shows it."""
        newest = self.of(row).newest() if self.is_known(row) else None
        return {
            "name": _place(row)[1],
            "own": not row.plan.task.state,
            "version": newest.number if newest else None,
        }

    # ------------------------------------------------------------ agents

    def allowed(self, row: JobRow, launch: int, node: int) -> State:
        """The state that a node of the job may write. Raises Unauthorized for lost nodes and ended
        launches, whose late requests must change nothing."""
        require_live(row, launch, node)
        return self.of(row)

    def sync(self, row: JobRow, state: State, node: int, report: Mapping[str, Any]) -> SyncAnswer:
        """Commit a node's changes; the answer has the current entries if others changed them."""
        puts = self._puts(row, node, report)
        self._begin(row, state, row.record.attempt)
        answer = commit(state, puts, report)
        answer["due"] = self._note(row, state, node, bool(report["same"]), bool(report["over"]))
        return answer

    def keep_torn(
        self, row: JobRow, state: State, node: int, report: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Save what a killed rank left in part as a version; the current files stay."""
        puts = self._puts(row, node, report)
        return {"version": state.keep_torn(row.name, row.record.attempt, puts).number}

    def _begin(self, row: JobRow, state: State, attempt: int) -> None:
        """At the first sync of an attempt, save what the previous attempt left as a version."""
        with self._lock:
            watched = self._watched.get(state.folder)
            if watched is not None and watched[:2] == (row.name, attempt):
                return
            self._watched[state.folder] = _Watched(row.name, attempt, {})
        if watched is not None or attempt > 1 or row.plan.task.state:
            state.keep(row.name if attempt > 1 else "", attempt - 1, "was left")

    def _note(self, row: JobRow, state: State, node: int, same: bool, over: bool) -> bool:
        """Record whether a node has stopped writing, and save a version if all have. Returns
        whether a version is due as soon as they have."""
        with self._lock:
            quiet = self._watched[state.folder].quiet
            quiet[node] = state_versions.heard(quiet.get(node), next(self._count), same, over)
            whole = state_versions.is_whole(quiet, row.plan.task.nodes)
            ended = len(quiet) == row.plan.task.nodes and all(q.over for q in quiet.values())
        newest = state.newest()
        if not state.has_changes():
            return False
        recent = newest is not None and time.time() - newest.at < state_versions.PAUSE
        if not whole or (recent and not ended):
            return True
        why = "an attempt ended" if ended else "nobody was writing"
        state.keep(row.name, row.record.attempt, why)
        return False

    def forget(self, row: JobRow) -> None:
        """Save the state of an ended job as a version, and release its memory."""
        try:
            row = self._records.get(row.name)
        except NotFound:
            return  # the job was deleted, with its own state
        if row.record.status not in TERMINAL or not self.is_known(row):
            return
        state = self.of(row)
        with self._lock:
            watched = self._watched.get(state.folder)
            if watched is not None and watched.job != row.name:
                return  # another job uses it now, and has saved this version
            state.keep(row.name, row.record.attempt, "was left")
            self._watched.pop(state.folder, None)
            if not row.plan.task.state:
                self._states.pop(state.folder, None)
        state.unload()

    def drop(self, job: str) -> None:
        """Delete the own state of a deleted job, if it has one."""
        if (self._root / OF_JOBS / job).exists():
            self._named(OF_JOBS, job).delete()

    def rest(self, job: str) -> None:
        """Release the memory of a job's own state."""
        self._named(OF_JOBS, job).unload()

    # ------------------------------------------------------------ people

    def settled(self, name: str) -> State:
        """The state of that name; an idle one is saved as a version first. Raises NotFound."""
        state = self.find(name)
        if self.holder(state) is None:
            state.keep("", 0, "was left")
        return state

    def last_job(self, name: str) -> str:
        """The job that wrote the state last, by its versions; empty if unknown. Raises NotFound."""
        state = self.find(name)
        if self.is_own(state):
            return name
        return next((version.job for version in reversed(state.versions()) if version.job), "")

    def restore(self, name: str, number: int) -> None:
        """Restore a version as the newest. Raises NotFound, and Conflict while a job uses the state
        or if a file of the version is damaged."""
        state = self.require_idle(name)
        for path, entry in state.version(number).entries.items():
            if entry.what == "file" and not matches(state.content(entry.sha256), entry.sha256):
                raise Conflict(
                    f"{path!r} of version {number} is damaged in the server's home",
                    where=str(state.content(entry.sha256)),
                    hint=f"choose another version: allranks state show {name}",
                )
        state.keep("", 0, "was left")
        state.restore(number)
        state.keep("", 0, f"version {number}, restored")

    def delete(self, name: str) -> None:
        """Delete the state with all versions. Raises NotFound, and Conflict while a job uses it."""
        self.require_idle(name).delete()

    def require_idle(self, name: str) -> State:
        """The state of that name. Raises NotFound, and Conflict while a job uses it."""
        state = self.find(name)
        if (row := self.holder(state)) is not None:
            hint = f"wait for it, or: allranks job cancel {row.name}"
            raise Conflict(f"the job {row.name} has the state {name} and has not ended", hint=hint)
        return state

    def _is_of(self, row: JobRow, state: State) -> bool:
        named = row.plan.task.state
        kind, name = (NAMED, named) if named else (OF_JOBS, row.name)
        return state.folder == self._root / kind / name

    def _named(self, kind: str, name: str) -> State:
        folder = self._root / kind / name
        state = self._open(folder)
        with self._lock:
            idle = [*self._states.values()][-_IDLE_STATES - 1 : -_IDLE_STATES]
            idle = [each for each in idle if each.folder not in self._watched]
        for each in idle:
            each.unload()
        return state


def _place(row: JobRow) -> tuple[str, str]:
    """The kind and the name of a job's state."""
    named = row.plan.task.state
    return (NAMED, named) if named else (OF_JOBS, row.name)
