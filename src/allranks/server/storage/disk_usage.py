"""The disk usage of a home, as `du` counts it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def sizes(root: Path) -> dict[str, int]:
    """Bytes on disk by the name of each entry of ``root``; ``.`` is the folder ``root`` itself.
    Hard links count once; unreadable files are skipped."""
    inodes: set[tuple[int, int]] = set()
    usage = {".": os.stat(root).st_blocks * 512}
    for name in sorted(os.listdir(root)):
        usage[name] = _size(os.path.join(root, name), inodes)
    return usage


def _size(path: str, inodes: set[tuple[int, int]]) -> int:
    total, pending = 0, [path]
    while pending:
        entry_path = pending.pop()
        with contextlib.suppress(OSError):
            status = os.lstat(entry_path)
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                inode = (status.st_dev, status.st_ino)
                if inode in inodes:
                    continue
                inodes.add(inode)
            total += status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(entry_path) as entries:
                    pending += [entry.path for entry in entries]
    return total
