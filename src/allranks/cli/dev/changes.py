"""Which files of a session come back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# By name what a file holds; see `allranks_dev_files.digest`.
Files = Mapping[str, str]


class Changes(NamedTuple):
    """``take``: changed there alone; ``both``: here as well, and otherwise; ``same``: alike in both
    places now; ``gone``: removed there, and unchanged here."""

    take: tuple[str, ...]
    both: tuple[str, ...]
    same: tuple[str, ...]
    gone: tuple[str, ...]


def changes(sent: Files, there: Files, here: Files) -> Changes:
    """Compare what was ``sent``, or came back since, with what is in the session and here."""
    differ = [name for name in sorted(there) if there[name] != sent.get(name)]
    same = [name for name in differ if there[name] == here.get(name)]
    rest = [name for name in differ if there[name] != here.get(name)]
    take = [name for name in rest if here.get(name) == sent.get(name)]
    both = [name for name in rest if here.get(name) != sent.get(name)]
    gone = [name for name in sorted(sent) if name not in there and here.get(name) == sent[name]]
    return Changes(tuple(take), tuple(both), tuple(same), tuple(gone))


def is_path_below(name: str) -> bool:
    """Whether a name is a path to something below a folder, without `..`."""
    parts = name.split("/")
    return bool(name) and "\0" not in name and not {"", ".", ".."} & {*parts}
