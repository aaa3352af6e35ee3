"""How much of the disk a home takes, as `du` says."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def sizes(root: Path) -> dict[str, int]:
    """Bytes on disk by the name of each file or folder in ``root``, and of ``root`` itself as
    ``.``. A file with several names counts once; what cannot be looked at is left out."""
    seen: set[tuple[int, int]] = set()
    found = {".": os.stat(root).st_blocks * 512}
    for name in sorted(os.listdir(root)):
        found[name] = _size(os.path.join(root, name), seen)
    return found


def _size(path: str, seen: set[tuple[int, int]]) -> int:
    total, ways = 0, [path]
    while ways:
        way = ways.pop()
        with contextlib.suppress(OSError):
            status = os.lstat(way)
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                which = (status.st_dev, status.st_ino)
                if which in seen:
                    continue
                seen.add(which)
            total += status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(way) as entries:
                    ways += [entry.path for entry in entries]
    return total
