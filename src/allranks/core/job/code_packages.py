"""Folders outside of the packages' own that Python imports from, and where their copies lie in the
code. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# In the code; agents move it out of the working folder.
FOLDER = ".allranks.packages"
LIST = f"{FOLDER}/imports"
# Beside the list: the folder with wheels of packages that no index has.
WHEELS = "wheels"
# The property of a job that names what it imports and its record does not hold.
NOT_RECORDED = "allranks.not_recorded"


class Import(NamedTuple):
    """A folder on the submitter's machine, and where its copy is."""

    folder: str
    copy: str


def packed(imports: Iterable[Import]) -> bytes:
    """The content of a file with these, the innermost folders first."""
    ordered = sorted(imports, key=lambda item: (-len(item.folder), item.folder))
    return "\0".join(text for item in ordered for text in item).encode(errors="surrogateescape")


def unpacked(content: bytes) -> list[Import]:
    """Read what ``packed`` wrote."""
    if not content:
        return []
    texts = content.decode(errors="surrogateescape").split("\0")
    return [Import(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]


def on_node(entry: Import, work: str, packages: str) -> Import:
    """An import whose copy is below ``work`` or, of a package that came along, ``packages``."""
    top, _, rest = entry.copy.partition("/")
    return entry._replace(copy=f"{packages}/{rest}" if top == FOLDER else f"{work}/{entry.copy}")
