"""Versions of state folders: when the server's copy is one, and which are kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# Of a state so many versions are kept, and while ranks run one is made every so many seconds.
KEPT, PAUSE = 5, 60.0


class Quiet(NamedTuple):
    """What a node has told of itself, in the order in which the server heard it: from ``since`` to
    ``until`` it was as the server has it. None: it was not, when it was heard ``last``."""

    last: int
    since: int | None = None
    until: int = 0
    over: bool = False


def heard(before: Quiet | None, now: int, same: bool, over: bool) -> Quiet:
    """After a node's word that it has looked again since its last one, and found it to be the
    ``same``: so it was when that came. ``over``: nothing changes there any more."""
    if over:
        since = before.since if before and same and before.since is not None else now
        return Quiet(now, since, now, True)
    if before is None or not same:
        return Quiet(now)
    return Quiet(now, before.last if before.since is None else before.since, before.last)


def is_whole(quiet: Mapping[int, Quiet], nodes: int) -> bool:
    """Whether there was a moment at which every node was as the server has it: no checkpoint lies
    there in half, whichever nodes write it."""
    if len(quiet) < nodes or any(node.since is None for node in quiet.values()):
        return False
    began = max(node.since or 0 for node in quiet.values())
    return all(node.over or node.until >= began for node in quiet.values())


def spare(versions: Iterable[int]) -> list[int]:
    """Those that are not kept any more."""
    return sorted(versions)[:-KEPT]
