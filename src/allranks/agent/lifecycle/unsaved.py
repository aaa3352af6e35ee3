"""What ranks wrote and could not be saved: a full disk gets time to have space again; then the job
fails, and the folder with the files is kept where it outlives the agent."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import folder_trees
from allranks.agent.transport.identity import AgentIdentity
from allranks.core.lifecycle.phases import WAITS
from allranks.core.plan import Task
from allranks.errors import is_disk_full
from allranks.statuses import Reason

if TYPE_CHECKING:  # the server asks for kept folders, and needs nothing of an attempt for that
    from allranks.agent.lifecycle.attempt import Attempt
    from allranks.api.agents import Assignment

# Begins the names of kept folders in the agent's own folder, which is then not removed.
KEPT = "unsaved-"
_HINT = "free space on the disk that the message names, then copy the files from there"


class AgentCalls(NamedTuple):
    """What ends saving early, see ``State.finish``: ``grace``, ``order`` and ``wait``; ``unsent``:
    seconds that a full disk has to have space again once the job is done. ``waits`` receives what
    saving waits for, and ``note`` records a message with its facts. ``make_space`` is called once
    the ranks have ended."""

    grace: float
    order: Callable[[], Assignment]
    wait: Callable[[float], None]
    unsent: float
    waits: Callable[[str], None]
    note: Callable[[str, Mapping[str, Any]], None]
    make_space: Callable[[], None] = lambda: None


def with_room(save: Callable[[], str], attempt: Attempt, calls: AgentCalls) -> str:
    """Call ``save`` until it returns '', as long as it returns that a disk is full and a successful
    ``attempt`` may wait. Return what it returned last."""
    was_stopped, until = stops(calls.order()), 0.0
    calls.make_space()
    while is_disk_full(why := save()) and attempt.reason is Reason.DONE:
        until = until or time.monotonic() + calls.unsent
        if time.monotonic() > until or (stops(calls.order()) and not was_stopped):
            break
        calls.waits(f"{WAITS}: {why}")
        calls.wait(1.0)
    calls.waits("")
    return why


def stops(order: Assignment) -> bool:
    """Not each new order does: that of a server that was started again has a new id."""
    return order["do"] == "stop" and order["why"] != Reason.DONE


def fail(attempt: Attempt, calls: AgentCalls, message: str, hint: str = _HINT) -> None:
    """A successful attempt whose files could not be saved has failed, or ended as ordered."""
    order = calls.order()
    if stops(order):
        attempt.overrule(Reason(str(order["why"])))
        calls.note(message, {"about": "unsaved"})
    else:
        attempt.overrule(Reason.OUTPUTS_LOST, message, hint)


def keep(folder: Path, task: Task, where: AgentIdentity) -> str:
    """Move a folder of the agent to the job's record, or leave it where it is if that is another
    disk. Return where it is, as an addition to a message; '' if its disk goes with the agent."""
    if task.sends_files:
        return _keep_beside(folder) if where.own_disk else ""
    within = f"unsaved/node-{where.node}"
    target = Path(task.record, within, folder.name)
    try:
        folder_trees.make(task.record)
        folder_trees.make_below(task.record, within)
        folder_trees.remove(target, ignore_errors=True)  # of an earlier attempt
        folder.rename(target)
    except OSError:
        return _keep_beside(folder)
    return _kept_in(target)


def _keep_beside(folder: Path) -> str:
    target = folder.with_name(f"{KEPT}{folder.name}")
    try:
        folder.rename(target)  # a full disk allows this
    except OSError as error:
        return f"; its files are lost: {error.strerror}"
    return _kept_in(target)


def _kept_in(folder: Path) -> str:
    return f"; its files are kept on {os.uname().nodename} in {folder}"


def is_kept(folder: Path) -> bool:
    """Whether it is an agent's folder, with files that could not be saved."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return any(name.startswith(KEPT) for name in os.listdir(folder))
    return False
