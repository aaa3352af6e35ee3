"""A node that does not share the disk of the server's home: its own folders for the job's files,
which it gets from the server and sends to it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from pathlib import Path

from allranks.agent.environments.current_python import is_here
from allranks.agent.lifecycle import unsaved
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.state.state_folder import State, job_files
from allranks.agent.transport.identity import AgentIdentity
from allranks.core.data.state_manifest import own
from allranks.core.job import output_places
from allranks.core.lifecycle.phases import Phase
from allranks.core.plan import Task
from allranks.errors import NotFound
from allranks.settings import Clocks


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


class OwnDisk(Part):
    """Gets what a node with a disk of its own needs, and sends the job's files that it writes. To
    other nodes it brings uv alone. ``at_server``: it has files of an earlier launch."""

    phase = Phase.DATA

    def __init__(self, task: Task, calls: AgentCalls, at_server: bool) -> None:
        where = calls.where
        self._state: State | None = None
        self._uv = _uv(where) if task.uv == str(_uv(where)) else None
        self._where, self._calls = where, calls
        if task.sends_files:
            pace, note = calls.clocks.look, calls.note_about("files")
            self._state = State(job_files(where), where, calls.server, True, pace, at_server, note)

    def begin(self, run: Run) -> None:
        """Fetch what this node of the job wrote in earlier launches; and uv, if the job needs it
        and the node has none."""
        if self._uv is not None and not self._uv.exists():
            self._calls.doing("fetches uv")
            beside = self._uv.with_suffix(".part")
            with contextlib.suppress(NotFound):  # building says that there is no uv
                self._calls.download(f"uv/{os.uname().machine}", beside)
                beside.chmod(0o755)
                beside.rename(self._uv)
        if self._state is not None:
            self._state.begin(run.number, self._calls.pause, self._calls.doing)

    def start(self, run: Run) -> None:
        """Start to send what is complete."""
        if self._state is not None:
            self._state.start()

    def finish(self, run: Run) -> str:
        """Send the rest, and the log of a failed build where no rank has started."""
        if self._state is None:
            return ""
        calls = self._calls
        return self._state.finish(run.is_done, calls.clocks.grace, calls.order, calls.wait)

    def lost(self, run: Run, why: str) -> None:
        if self._state is not None and run.is_done:
            hint = "check the disk of the server's home and its log, and run the job again"
            kept = unsaved.keep(self._state.root, run.task, self._where)
            message = f"not all files of the job reached the server: {why}{kept}"
            unsaved.fail(run, self._calls, message, hint)
