"""Folders that nodes of live jobs synchronize with the server: what the states, the working folders
and the files of nodes with disks of their own have in common."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import folder_trees
from allranks.core.data import state_manifest
from allranks.core.data.state_manifest import Entry
from allranks.errors import Conflict, Unauthorized, UsageError
from allranks.statuses import TERMINAL, NodeState
from allranks.store.files.state_folders import Put, State
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.agents import SyncAnswer


class SyncedFolders:
    """Thread-safe. A kind says with ``may_write`` which paths of its part a node may write."""

    def __init__(self) -> None:
        self._states: dict[Path, State] = {}
        self._lock = threading.Lock()

    def _open(self, folder: Path) -> State:
        """One State for each folder, whose lock orders all changes; the last one in `_states`."""
        with self._lock:
            state = self._states.pop(folder) if folder in self._states else State(folder)
            self._states[folder] = state
            return state

    def may_write(self, path: str, node: int) -> bool:
        return True

    def _puts(self, row: JobRow, node: int, report: Mapping[str, Any]) -> list[Put]:
        """A node's changes. Raises Conflict unless they are of the job's attempt, and UsageError
        for paths it may not write and malformed entries."""
        if int(report["attempt"]) != row.record.attempt:
            raise Conflict("another attempt has this folder", hint="leave")
        return [self._put(put, node) for put in report["puts"]]

    def _put(self, put: Mapping[str, Any], node: int) -> Put:
        path, fields, hint = put["path"], put["entry"], "leave it out"
        if not state_manifest.is_path(path, node) or not self.may_write(path, node):
            message = f"{str(path)[:255]!r} is not a path that this node may write"
            raise UsageError(message, hint=hint)
        entry = None if fields is None else Entry(*fields)
        if entry is not None and not _is_entry(entry):
            raise UsageError(f"{path!r} is not a file, folder or link", hint=hint)
        is_link = entry is not None and entry.what == "link"
        if entry is not None and is_link and not state_manifest.stays_inside(path, entry.target):
            raise UsageError(f"{path!r} is a link out of the state folder", hint=hint)
        return Put(path, int(put["base"]), entry)

    def _release(self, root: Path) -> list[Path]:
        """Release the memory of the folders in ``root``. Return those that were there."""
        with self._lock:
            folders = [folder for folder in self._states if folder.parent == root]
            for folder in folders:
                del self._states[folder]
        return folders


def commit(state: State, puts: Sequence[Put], report: Mapping[str, Any]) -> SyncAnswer:
    """Commit a node's changes; the answer has the current entries if others changed them."""
    made = state.commit(puts)
    answer: SyncAnswer = {"revision": made.after, "done": made.done, "entries": None, "due": False}
    if made.before != report["after"]:
        answer["entries"] = state_manifest.pack(made.entries)
    return answer


def require_live(row: JobRow, launch: int, node: int) -> None:
    """Raise Unauthorized for lost nodes and ended launches."""
    job = row.record
    if job.status in TERMINAL or launch != job.launch or not node < len(job.nodes):
        raise Unauthorized("this launch has ended for this node", hint="leave")
    if job.nodes[node].left or job.nodes[node].state is NodeState.LOST:
        raise Unauthorized("this node was lost or has left", hint="leave")


def entry_of(path: Path, status: os.stat_result, below: Path) -> Entry | None:
    """What lies at a path of the server's disk, in a folder that a job can write to; None for pipes
    and the like. Raises OSError."""
    if stat.S_ISDIR(status.st_mode):
        return Entry("folder", mtime_ns=status.st_mtime_ns)
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", mtime_ns=status.st_mtime_ns, target=os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return None
    with folder_trees.open_file(path, below=below) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        status = os.fstat(file.fileno())
    mode = stat.S_IMODE(status.st_mode) & 0o777
    return Entry("file", sha256, status.st_size, status.st_mtime_ns, mode)


def _is_entry(entry: Entry) -> bool:
    numbers = (entry.size, entry.mtime_ns, entry.mode, entry.seq)
    plain = (
        all(type(number) is int and abs(number) < 2**63 for number in numbers) and entry.size >= 0
    )
    texts = isinstance(entry.sha256, str) and isinstance(entry.target, str)
    return plain and texts and entry.what in ("file", "folder", "link")
