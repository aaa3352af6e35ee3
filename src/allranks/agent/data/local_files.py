"""Files of the node's own disks, as the cache takes those of stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from allranks.agent.data.file_entry import Changed, Item, Report


def items(source: Path) -> tuple[list[Item], bool]:
    """The files below a folder, or the one that it is; which of the two. Raises OSError."""
    if source.is_file():
        return [_item(source, source.name)], True
    found = []
    # A link to a folder above would lead round and round.
    seen = {os.path.realpath(source)}
    for folder, folders, names in os.walk(source, followlinks=True, onerror=_raise):
        real = {name: os.path.realpath(os.path.join(folder, name)) for name in folders}
        folders[:] = [name for name in folders if real[name] not in seen]
        seen |= {real[name] for name in folders}
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                found.append(_item(path, str(path.relative_to(source))))
    return found, False


def take(source: Path, wanted: Sequence[Item], goal: Path, report: Report) -> dict[str, int]:
    """Have copies of them in ``goal``, which nobody can change by changing the source. Raises
    Changed for one that is another by now, and OSError."""
    for item in wanted:
        path = goal / item.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy2(item.key, path)
        if _item(Path(item.key), item.name) != item:
            raise Changed(item.name)
        os.chmod(path, 0o444)
        report(item.size, True)
    return dict.fromkeys((item.name for item in wanted), 0)


def part(item: Item, start: int, end: int) -> memoryview:
    """The bytes of a file from ``start`` to ``end``. Raises Changed and OSError."""
    try:
        with open(item.key, "rb") as file:
            data = memoryview(os.pread(file.fileno(), end - start, start))
        if _item(Path(item.key), item.name) != item or len(data) != end - start:
            raise Changed(item.name)
    except FileNotFoundError:
        raise Changed(item.name) from None
    return data


def _raise(error: OSError) -> None:
    raise error


def _item(path: Path, name: str) -> Item:
    seen = path.stat()
    return Item(name, str(path), seen.st_size, f"{seen.st_mtime_ns}.{seen.st_ino}", seen.st_mtime)
