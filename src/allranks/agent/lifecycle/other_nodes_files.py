"""Files of the working folder that only another node's ranks made.

Often one rank writes the checkpoint that all read, because the script comes from a shared disk.
Before the ranks of a later attempt start, each node copies such files; when they have ended, it
removes the copies that none has changed. So each file stays with the node that made it. The copies
are listed in a file, from which the server removes those of a killed agent: they would grow old.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from allranks import folder_trees
from allranks.agent.lifecycle.collect_files import Listing
from allranks.core.data.working_set import FILES, is_carried

_LIST = "copies"


def copy_missing(folders: Iterable[Path], part: Path) -> None:
    """Copy what ``folders`` of other nodes have and the one of this node's ``part`` lacks. No rank
    runs. Raises OSError."""
    own, beside = part / FILES, part / "copy"
    with (part / _LIST).open("ab", buffering=0) as listed:
        for folder in folders:
            for path in sorted(_files(folder)):
                target = own / path
                if os.path.lexists(target) or not _may_have(own, target.parent):
                    continue
                beside.unlink(missing_ok=True)
                shutil.copy2(folder / path, beside, follow_symlinks=False)
                # First, so that no copy is taken for the node's own file.
                listed.write(json.dumps([path, _identity(beside)]).encode() + b"\n")
                with _writable(next(above for above in target.parents if above.exists())):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    beside.rename(target)


def copies_of(part: Path) -> Listing:
    """The copies in a node's part. Raises OSError."""
    try:
        lines = (part / _LIST).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    listed = (json.loads(line) for line in lines if line.endswith(b"]"))  # a killed one wrote half
    return {path: (inode, size, mtime) for path, (inode, size, mtime) in listed}


def remove_unchanged(part: Path) -> None:
    """Remove the copies that no rank has changed, and folders that are empty then. Raises
    OSError."""
    own = part / FILES
    for path, identity in copies_of(part).items():
        target = own / path
        with contextlib.suppress(OSError):  # a rank removed it, or its folder is in use
            if _identity(target) == identity:
                with _writable(target.parent):
                    target.unlink()
                for folder in target.relative_to(own).parents[:-1]:
                    (own / folder).rmdir()
    (part / _LIST).unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[str]:
    """The files and links of a working folder that another node may have."""

    def fail(error: OSError) -> None:
        if error.errno != errno.ENAMETOOLONG:
            raise error

    for place in folder_trees.files(folder, onerror=fail):
        path = os.path.relpath(place, folder)
        if not is_carried(path) or folder_trees.is_too_long(place):
            continue
        mode = os.lstat(place).st_mode
        stays = stat.S_ISLNK(mode) and not os.path.isabs(os.readlink(place))
        if stays or stat.S_ISREG(mode):
            yield path


def _may_have(own: Path, folder: Path) -> bool:
    """Whether nothing else is where that folder would be. Links may lead to users' data."""
    while folder != own:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            return False
        folder = folder.parent
    return True


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Meanwhile its owner may write to the folder."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        yield
        return
    folder.chmod(mode | stat.S_IRWXU)
    try:
        yield
    finally:
        folder.chmod(mode)


def _identity(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns
