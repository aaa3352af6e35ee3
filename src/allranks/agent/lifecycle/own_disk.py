"""A node that does not share the disk of the server's home: its own folders for the job's files,
which it gets from the server and sends to it."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from allranks.agent.environments.current_python import is_here
from allranks.agent.lifecycle import unsaved
from allranks.agent.lifecycle.attempt import Attempt
from allranks.agent.lifecycle.unsaved import AgentCalls
from allranks.agent.state.state_folder import State, job_files
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.core.data.state_manifest import own
from allranks.core.job import output_places
from allranks.core.plan import Task
from allranks.errors import NotFound, Unreachable
from allranks.settings import Clocks
from allranks.statuses import Reason

# Seconds for an answer.
_TIMEOUT = 30.0


def patience(task: Task, clocks: Clocks) -> float:
    """How long a node whose ranks have started waits for a server that is away, such as a laptop
    that is closed overnight: what it has not sent is gone with its own disk, and stays on a shared
    one."""
    return clocks.unsent if task.sends_files else clocks.patience


def on_node(task: Task, where: AgentIdentity) -> Task:
    """The task with this node's paths instead of those of the server's home. uv is downloaded to
    any node that has none and needs it."""
    moves = task.moves_data or any(item.digest for item in task.inputs)
    builds = task.current is None or moves or not is_here(task.current)
    if builds and task.uv and not os.access(task.uv, os.X_OK) and shutil.which("uv") is None:
        task = task._replace(uv=str(_uv(where)))
    task = task._replace(sends_files=task.sends_files or where.own_disk)
    if not task.sends_files:
        return task
    record = str(job_files(where).root / own(where.node))
    outputs = tuple(
        output._replace(path=output_places.on_node(task, output, record)) for output in task.outputs
    )
    return task._replace(
        record=record,
        outputs=outputs,
        environments=_outside(task, task.environments) or f"{where.cache}/environments",
        cache=_outside(task, task.cache) or f"{where.cache}/data",
    )


def _outside(task: Task, folder: str) -> str:
    """The folder, if it is not in the server's home."""
    return "" if folder.startswith(f"{task.home}/") else folder


def with_home(task: Task, where: AgentIdentity) -> Task:
    """The task with a home folder of the node's, if the user has none that it may enter, as one
    that is only a number; uv and frameworks keep their caches there. Such a user also gets a name:
    Python's getpass and PyTorch's compiler fail without one."""
    base = dict(task.base)
    entry = _passwd_entry()
    if entry is None:
        name = base.get("USER") or base.get("LOGNAME") or str(os.geteuid())
        base = {**base, "USER": name, "LOGNAME": name}
    home = base.get("HOME") or ("" if entry is None else entry.pw_dir)
    is_there = home != "/" and os.access(home, os.R_OK | os.X_OK)
    if not is_there and not os.access(home, os.W_OK):
        made = where.folder / "home"
        made.mkdir(mode=0o700, exist_ok=True)
        home = str(made)
    return task._replace(base={**base, "HOME": home})


def _passwd_entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.geteuid())
    except KeyError:
        return None


def _uv(where: AgentIdentity) -> Path:
    return where.folder / "uv"


class OwnDisk:
    """Gets what a node with a disk of its own needs, and sends the job's files that it writes. To
    other nodes it brings uv alone. ``known``: whether the server has files of an earlier launch."""

    def __init__(
        self,
        task: Task,
        where: AgentIdentity,
        server: ServerAddress,
        pace: float,
        known: bool,
        calls: AgentCalls,
    ) -> None:
        self._state: State | None = None
        self._uv = _uv(where) if task.uv == str(_uv(where)) else None
        self._task, self._where, self._server, self._calls = task, where, server, calls
        if task.sends_files:
            self._state = State(job_files(where), where, server, True, pace, known, self._note)

    def begin(
        self, attempt: int, wait: Callable[[float], None], doing: Callable[[str], None]
    ) -> None:
        """Fetch what this node of the job wrote in earlier launches; and uv, if the job needs it
        and the node has none. Raises AllranksError, OSError, and what ``wait`` raises."""
        if self._uv is not None and not self._uv.exists():
            doing("fetches uv")
            self._fetch_uv(self._uv, wait)
        if self._state is not None:
            self._state.begin(attempt, wait, doing)

    def _fetch_uv(self, target: Path, wait: Callable[[float], None]) -> None:
        beside = target.with_suffix(".part")
        machine = os.uname().machine
        path = f"/agent/v1/{self._where.node}/uv/{machine}"
        while True:
            try:
                with self._server.client(_TIMEOUT) as client, beside.open("wb") as file:
                    for piece in client.download(path):
                        file.write(piece)
                        wait(0.0)
                beside.chmod(0o755)
                beside.rename(target)
                return
            except NotFound:
                return  # building says that there is no uv
            except Unreachable:
                wait(0.5)

    def start(self) -> None:
        """Start to send what is complete."""
        if self._state is not None:
            self._state.start()

    def finish(self, attempt: Attempt | None = None) -> None:
        """Send the rest. A successful ``attempt`` whose files cannot be sent has failed."""
        if self._state is None:
            return
        done = attempt is not None and attempt.reason is Reason.DONE
        save = partial(self._state.finish, done, *self._calls[:3])
        why = save() if attempt is None else unsaved.with_room(save, attempt, self._calls)
        if attempt is not None and done and why:
            hint = "check the disk of the server's home and its log, and run the job again"
            kept = unsaved.keep(self._state.root, self._task, self._where)
            message = f"not all files of the job reached the server: {why}{kept}"
            unsaved.fail(attempt, self._calls, message, hint)

    def _note(self, message: str) -> None:
        self._calls.note(message, {"about": "files"})
