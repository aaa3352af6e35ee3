"""How large a code folder may be, and what in it is large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from allranks.core.amounts import size_text

# A code folder beyond either is more likely a wrong folder, or has data in it.
MOST_BYTES = 500_000_000
MOST_FILES = 20_000
# How many entries are named, and the part of a folder from which on one entry in it stands for it.
_NAMED, _NEARLY_ALL = 10, 0.9


class Entry(NamedTuple):
    """A file, or a folder (its name ends in ``/``) with all that is in it."""

    name: str
    size: int
    files: int

    def __str__(self) -> str:
        name = "".join(char if char.isprintable() else "?" for char in self.name)
        files = f" ({self.files:,} file{'s' * (self.files != 1)})" if name.endswith("/") else ""
        return f"{size_text(self.size):>9}  {name}{files}"


def is_too_large(files: int, size: int) -> bool:
    return size > MOST_BYTES or files > MOST_FILES


def largest(files: Iterable[tuple[str, int]]) -> list[Entry]:
    """The ten largest entries of a folder of these names and sizes: by files where there are too
    many of them, else by size. A folder with nearly all of it in one entry is named by that."""
    sizes: dict[str, list[int]] = {}
    within: dict[str, set[str]] = {}
    for name, size in files:
        entry, slash = name, len(name)
        while True:
            total = sizes.setdefault(entry, [0, 0])
            total[0] += size
            total[1] += 1
            slash = name.rfind("/", 0, slash)
            folder = name[: slash + 1]
            within.setdefault(folder, set()).add(entry)
            if slash < 0:
                break
            entry = folder
    top = [Entry(name, *sizes[name]) for name in within.get("", ())]
    by_files = sum(entry.files for entry in top) > MOST_FILES

    def amount(entry: Entry) -> int:
        return entry.files if by_files else entry.size

    def narrowed(entry: Entry) -> Entry:
        while entry.name in within:
            child = max((Entry(name, *sizes[name]) for name in within[entry.name]), key=amount)
            if amount(child) < amount(entry) * _NEARLY_ALL:
                break
            entry = child
        return entry

    ordered = sorted(map(narrowed, top), key=lambda entry: (-amount(entry), entry.name))
    return ordered[:_NAMED]
