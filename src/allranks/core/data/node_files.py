"""The files of a job that a node keeps in a folder of its own and sends to the server. Pure."""

from __future__ import annotations

import re

from allranks.core.data.state_manifest import own
from allranks.core.data.working_set import is_carried

# The folders of a job's record that nodes write, relative to it. The server writes the others.
WRITTEN = (
    *(f"artifacts/{name}" for name in ("outputs", "logs", "model", "data", "tensorboard", "work")),
    "artifacts/system_logs",
    "attempts",
    "named-outputs",
    "unbrought",
)
_FREE = re.compile(
    r"(artifacts/(outputs|logs|model|data|tensorboard|work)|named-outputs|attempts/[0-9]{1,6}/work)/."
    r"|artifacts/work\Z|attempts/[0-9]{1,6}(/work)?\Z",
    re.DOTALL,
)
# Of these, nodes that share a disk find one another's.
_OF_ALL = re.compile(
    r"(artifacts/(outputs|logs|model|data|tensorboard)|named-outputs)/.", re.DOTALL
)


def parts(node: int) -> tuple[str, ...]:
    """The folders that a node sends, in its own part of the server's copy."""
    return tuple(f"{own(node)}/{folder}" for folder in WRITTEN)


def may_write(path: str, node: int) -> bool:
    """Whether a node may write that path of its job's record. It has no empty part and no dots."""
    if _FREE.match(path):
        return True
    of_node = (f"artifacts/system_logs/environment_node_{node}.txt", f"unbrought/node-{node}")
    return path in of_node or path.startswith(f"{of_node[1]}/")


def is_for_all(path: str) -> bool:
    """Whether the next attempt finds that path of a node's on all nodes."""
    return _OF_ALL.match(path) is not None and is_carried(path)


def shown(path: str) -> str:
    """Such a path as ranks know it."""
    return path.removeprefix("artifacts/")
