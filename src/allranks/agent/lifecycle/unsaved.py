"""What ranks wrote and could not be saved: a full disk gets time to have space again; then the job
fails, and the folder with the files is kept where it outlives the agent."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from allranks import folder_trees
from allranks.agent.transport.identity import AgentIdentity
from allranks.core.amounts import seconds_text
from allranks.core.lifecycle.phases import WAITS
from allranks.core.plan import Task
from allranks.errors import is_disk_full
from allranks.statuses import Reason

if TYPE_CHECKING:  # the server asks for kept folders, and needs nothing of an attempt for that
    from allranks.agent.lifecycle.agent_calls import AgentCalls
    from allranks.agent.lifecycle.parts import Part, Run
    from allranks.api.agents import Assignment

# Begins the names of kept folders in the agent's own folder, which is then not removed.
KEPT = "unsaved-"
_HINT = "free space on the disk that the message names, then copy the files from there"


def finish(parts: Sequence[Part], run: Run, calls: AgentCalls) -> None:
    """Save what the ranks of a run have left, the last part first. For one that is done, a server
    that is away gets the time that a full disk gets; then what needs no server is saved, as copies
    in the record."""
    from allranks.agent.lifecycle.agent_calls import ServerAway  # lazy: as above

    patience = calls.patience
    if run.is_done:
        calls.patience = calls.clocks.unsent
    for part in reversed(parts):
        try:
            why = with_room(partial(part.finish, run), run, calls)
        except ServerAway:
            why = f"the server did not answer for {seconds_text(calls.link.silent_for())}"
        if why:
            part.lost(run, why)
    calls.patience = patience


def with_room(save: Callable[[], str], run: Run, calls: AgentCalls) -> str:
    """Call ``save`` until it returns '', as long as it returns that a disk is full and a successful
    run may wait. Return what it returned last."""
    run.was_stopped, until = stops(calls.order()), 0.0
    calls.make_space(run.task)
    while is_disk_full(why := save()) and run.is_done:
        until = until or time.monotonic() + calls.clocks.unsent
        if time.monotonic() > until or (stops(calls.order()) and not run.was_stopped):
            break
        calls.waits(f"{WAITS}: {why}")
        calls.inbox.wait(1.0)
    calls.waits("")
    return why


def stops(order: Assignment) -> bool:
    """Not each new order does: that of a server that was started again has a new id."""
    return order["do"] == "stop" and order["why"] != Reason.DONE


def fail(run: Run, calls: AgentCalls, message: str, hint: str = _HINT) -> None:
    """A successful run whose files could not be saved has failed, or ended as ordered."""
    order = calls.order()
    if stops(order):
        run.attempt.overrule(Reason(str(order["why"])))
        calls.note(message, {"about": "unsaved"})
    else:
        run.attempt.overrule(Reason.OUTPUTS_LOST, message, hint)


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
