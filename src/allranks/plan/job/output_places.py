"""Where the outputs of nodes that do not share the disk of the server's home lie, there and on the
node. Pure."""

from __future__ import annotations

import posixpath

from allranks.plan.plan import OutputTask, Task


def on_node(task: Task, output: OutputTask, record: str) -> str:
    """Where a node writes that output, in its own copy of the record, if it is to send it."""
    if output.path.startswith(f"{task.record}/"):
        return posixpath.join(record, output.path.removeprefix(f"{task.record}/"))
    if not is_in_store(task, output):
        return output.path
    name = f"/{posixpath.basename(output.path)}" if output.is_file else ""
    return f"{record}/named-outputs/{output.name}{name}"


def on_server(task: Task, path: str) -> tuple[str, str]:
    """The folder of the server, and the path in it, of what is at that path of a node's copy of the
    record: most is in the record, an output may be in the server's own store."""
    if path.startswith("named-outputs/"):
        _, name, *within = path.split("/", 2)
        for output in task.outputs:
            if output.name == name and is_in_store(task, output):
                folder = posixpath.dirname(output.path) if output.is_file else output.path
                return store(task), posixpath.join(posixpath.relpath(folder, store(task)), *within)
    return task.record, path


def is_in_store(task: Task, output: OutputTask) -> bool:
    """Whether the output has a path of its own in the server's own store."""
    plain = posixpath.normpath(output.path) == output.path
    return plain and not output.uri and output.path.startswith(f"{store(task)}/")


def store(task: Task) -> str:
    """The server's own store: beside the folder with the records of all jobs."""
    return f"{posixpath.dirname(posixpath.dirname(task.record))}/data"
