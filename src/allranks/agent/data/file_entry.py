"""Files of a place, as those that list, fetch and keep them speak of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

# Hears of so many bytes more, and whether they had to be moved.
Report = Callable[[int, bool], None]


class Item(NamedTuple):
    """A file: its name below the folder, its key in the store, its size in bytes, what changes with
    its content, and when that was last changed."""

    name: str
    key: str
    size: int
    tag: str
    mtime: float


class Changed(Exception):
    """The store has another content now than it told at first."""
