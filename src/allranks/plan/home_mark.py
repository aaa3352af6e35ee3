"""The mark by which a node knows that it sees the server's home, and not another folder of that
path. Pure."""

from __future__ import annotations

from typing import TypedDict

# Marks of the last servers stay: a node may have the answer of one that has restarted since.
KEPT = 4


class HomeMark(TypedDict):
    """The file with the marks of a home, and the server's own."""

    path: str
    mark: str


def renewed(mark: str, before: str) -> str:
    """The content of the file with a new mark."""
    return "\n".join([mark, *before.split("\n")[: KEPT - 1]])


def is_there(mark: HomeMark, content: str) -> bool:
    """Whether a file with this content is that of the server's home."""
    return mark["mark"] in content.split("\n")
