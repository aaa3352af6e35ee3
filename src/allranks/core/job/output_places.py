"""Where the outputs of nodes that do not share the disk of the server's home lie, there and on the
node. Pure."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from allranks.core.plan import OutputTask, Task


class Place(NamedTuple):
    """Of a path in a node's copy of the record: whether that file lies in the server's own store,
    and its path there, or else in the record. ``within`` is its path in the output."""

    in_store: bool
    path: str
    within: str = ""


def on_node(task: Task, output: OutputTask, record: str) -> str:
    """Where a node writes that output, in its own copy of the record, if it is to send it."""
    if output.path.startswith(f"{task.record}/"):
        return posixpath.join(record, output.path.removeprefix(f"{task.record}/"))
    if not _is_in_store(task, output):
        return output.path
    name = f"/{posixpath.basename(output.path)}" if output.is_file else ""
    return f"{record}/named-outputs/{output.name}{name}"


def on_server(task: Task, path: str) -> Place:
    """Where the server keeps what is at that path of a node's copy of the record."""
    parts = path.split("/", 2)
    for output in task.outputs if parts[0] == "named-outputs" else ():
        if output.name == parts[1] and _is_in_store(task, output):
            there = posixpath.relpath(output.path, _store(task))
            within = "".join(parts[2:])
            if not output.is_file:
                return Place(True, posixpath.join(there, *parts[2:]), within)
            if within == posixpath.basename(there):
                return Place(True, there)
    return Place(False, path)


def _is_in_store(task: Task, output: OutputTask) -> bool:
    """Whether the output has a path of its own in the server's own store."""
    return not output.uri and output.path.startswith(f"{_store(task)}/")


def _store(task: Task) -> str:
    """The server's own store when the job was submitted; the home may have moved since. It is
    beside the folder with the records of all jobs."""
    return f"{posixpath.dirname(posixpath.dirname(task.record))}/data"
