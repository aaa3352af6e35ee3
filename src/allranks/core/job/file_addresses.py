"""Addresses of a job's files: each has one, the same in every command, in inputs and in Python.

`outputs/…`, `logs/…`, `work/…`, `model/…`, `data/…` and `user_logs/…` are its artifacts, which
`job download` puts below `artifacts/`; `named-outputs/NAME/…` is in a named output; `attempts/1/…`
is of an earlier attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from posixpath import basename
from typing import NamedTuple

_ARTIFACTS = "artifacts/"
_NAMED = "named-outputs/"
_NODE = re.compile(r"work/node-(\d+)/")
# How many addresses a hint lists, and among how many it looks.
_LISTED, _LOOKED_AT = 3, 20_000


class JobFile(NamedTuple):
    """A file that a job left. ``node`` wrote it; None where all nodes write to the same folder.
    ``link``: the file that a link leads to."""

    path: str
    size: int
    node: int | None = None
    link: str = ""


def address(recorded: str, attempts: int) -> str:
    """The address of a file, by its path in the record of a job of so many attempts."""
    for head in (f"attempts/{attempts}/", _ARTIFACTS):
        if recorded.startswith(head):
            return recorded.removeprefix(head)
    return recorded


def downloaded(recorded: str, attempts: int) -> str:
    """Where `job download` puts a file of the record."""
    last = f"attempts/{attempts}/"
    return _ARTIFACTS + recorded.removeprefix(last) if recorded.startswith(last) else recorded


def downloaded_as(address: str) -> str:
    """Where `job download` puts the file or folder of an address."""
    path = normal(address)
    return path if path.startswith((_NAMED, "attempts/")) else _ARTIFACTS + path


def written_by(path: str, nodes: int) -> int | None:
    """The node that wrote the file at an address."""
    if nodes == 1:
        return 0
    match = _NODE.match(path)
    return int(match[1]) if match else None


def normal(address: str) -> str:
    """The address that a person means: `artifacts/` or `./` may stand before it, and
    `outputs.NAME/…` is `named-outputs/NAME/…`."""
    path = "/".join(step for step in address.split("/") if step not in ("", "."))
    path = path.removeprefix(_ARTIFACTS)
    if (rest := path.removeprefix("outputs.")) not in ("", path):
        return _NAMED + rest
    return path


def selects(address: str, path: str) -> bool:
    """Whether an address (of a file, of a folder, or a pattern with `*`) means that file."""
    meant = normal(address)
    return path == meant or path.startswith(f"{meant}/") or fnmatchcase(path, meant)


def hint(job: str, address: str, paths: Iterable[str]) -> str:
    """What to write instead of an address that is not there."""
    near = _nearest(normal(address), [path for path, _ in zip(paths, range(_LOOKED_AT))])  # noqa: B905
    if not near:
        return f"it has no files: allranks job files {job}"
    return f"it has {', '.join(map(_printable, near))}; all: allranks job files {job}"


def _nearest(address: str, paths: Sequence[str]) -> list[str]:
    """Those of the same name, else of a name or an address like it, else any."""
    from difflib import get_close_matches  # lazy: only when something is not there

    last = basename(address)
    names = {basename(path): path for path in paths}
    near = (
        [path for path in paths if f"/{last}/" in f"/{path}/"]
        or [names[name] for name in get_close_matches(last, names, _LISTED)]
        or get_close_matches(address, paths, _LISTED)
        # What ranks printed is rarely meant.
        or [path for path in paths if not path.startswith(("user_logs/", "attempts/"))]
    )
    return near[:_LISTED]


def _printable(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="replace")
