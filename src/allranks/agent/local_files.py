"""Files of the node's own disks, as the cache takes those of stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from allranks.agent.items import Item, Report


def items(source: Path) -> tuple[list[Item], bool]:
    """The files below a folder, or the one that it is; which of the two."""
    if source.is_file():
        return [_item(source, source.name)], True
    found = []
    for folder, _, names in os.walk(source, followlinks=True):
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                found.append(_item(path, str(path.relative_to(source))))
    return found, False


def take(source: Path, wanted: Sequence[Item], goal: Path, report: Report) -> dict[str, int]:
    """Have copies of them in ``goal``, which nobody can change by changing the source."""
    for item in wanted:
        path = goal / item.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy2(item.key, path)
        os.chmod(path, 0o444)
        report(item.size, True)
    return dict.fromkeys((item.name for item in wanted), 0)


def _item(path: Path, name: str) -> Item:
    seen = path.stat()
    return Item(name, str(path), seen.st_size, f"{seen.st_mtime_ns}.{seen.st_ino}", seen.st_mtime)
