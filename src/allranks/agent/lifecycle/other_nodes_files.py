"""Files of the working folder that only another node's ranks made.

Often one rank writes the checkpoint that all read, because the script comes from a shared disk.
Before the ranks of a later attempt start, each node copies such files; when they have ended, it
removes the copies that none has changed. So each file stays with the node that made it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from allranks.agent.lifecycle.collect_files import Listing, listing
from allranks.plan.data.working_set import is_carried


def copy_missing(folders: Iterable[Path], own: Path, beside: Path) -> Listing:
    """Copy what ``folders`` of other nodes have and ``own`` lacks; ``beside`` is on the disk of
    ``own``. No rank runs. Returns the copies. Raises OSError."""
    copies = dict[str, tuple[int, int, int]]()
    for folder in folders:
        for path in sorted(listing(folder)):
            source, target = folder / path, own / path
            leads_away = source.is_symlink() and os.path.isabs(os.readlink(source))
            if leads_away or not is_carried(path) or os.path.lexists(target):
                continue
            with contextlib.suppress(FileExistsError, NotADirectoryError):  # a file is in the way
                target.parent.mkdir(parents=True, exist_ok=True)
                beside.unlink(missing_ok=True)
                shutil.copy2(source, beside, follow_symlinks=False)
                beside.rename(target)
                copies[path] = _identity(target)
    return copies


def remove_unchanged(copies: Listing, own: Path) -> None:
    """Remove the copies that no rank has changed, and folders that are empty then."""
    for path, identity in copies.items():
        target = own / path
        with contextlib.suppress(OSError):  # a rank removed it, or its folder is in use
            if _identity(target) == identity:
                target.unlink()
                for folder in target.relative_to(own).parents[:-1]:
                    (own / folder).rmdir()


def _identity(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns
