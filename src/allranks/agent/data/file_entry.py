"""A file in a listing of a store or folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

# Called with the number of further bytes that are present, and whether they were transferred.
Report = Callable[[int, bool], None]


class FileEntry(NamedTuple):
    """A file: ``name`` below the input's folder, ``key`` in the store, ``size`` in bytes, ``tag``
    that changes with the content, and ``mtime`` in Unix seconds."""

    name: str
    key: str
    size: int
    tag: str
    mtime: float


class Changed(Exception):
    """The source's content changed since it was listed."""
