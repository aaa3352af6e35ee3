"""Outputs at paths of their own: on a disk that the server sees, too, or on this node alone."""

from __future__ import annotations

import os
import posixpath
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.transport.identity import AgentIdentity
from allranks.core.plan import OutputTask, Task
from allranks.errors import AllranksError

if TYPE_CHECKING:
    from allranks.api.agents import OutputSeen

# Seconds for an answer.
_TIMEOUT = 30.0


def require_outside(task: Task, home: str) -> None:
    """Raise AllranksError for an output in the server's ``home`` that this node, which does not see
    it, cannot send there."""
    for output in task.outputs:
        if task.sends_files and output.path.startswith(f"{home}/"):
            raise AllranksError(
                f"{os.uname().nodename} does not see ALLRANKS_HOME, and can send the output "
                f"{output.name} only to its folder `data`",
                where=output.path,
                hint="leave `path` out, and the output goes to the job's record; or name a path "
                "in a datastore: azureml://datastores/default/paths/NAME",
            )


def note_unseen(task: Task, home: str, calls: AgentCalls) -> None:
    """Note each output that stays on a disk which the server does not see. Raises AllranksError,
    OSError."""
    for output in _of_their_own(task, home, calls.where):
        folder = posixpath.dirname(output.path) if output.is_file else output.path
        name = secrets.token_hex(16)
        mark = Path(folder, f".allranks-{name}")
        mark.touch()
        try:
            with calls.server.client(_TIMEOUT) as client:
                path = f"/agent/v1/{calls.where.node}/output/{output.name}/{name}"
                answer: OutputSeen = client.json("GET", path)
        finally:
            mark.unlink()
        if not answer["seen"]:
            host = os.uname().nodename
            text = (
                f"the output {output.name} stays on {host}: the server does not see {output.path}"
            )
            calls.note(text, {"about": "files"})


def _of_their_own(task: Task, home: str, where: AgentIdentity) -> Iterator[OutputTask]:
    """Those at a path that the user has named. Nodes on the server's own machine need no look, and
    volumes of pods are known to outlast them."""
    if not where.fingerprint or (task.sends_files and not where.own_disk):
        return
    for output in task.outputs:
        ours = output.path.startswith((f"{home}/", f"{task.record}/"))
        if output.path and not output.uri and not ours:
            yield output
