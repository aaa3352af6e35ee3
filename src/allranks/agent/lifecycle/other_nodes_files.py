"""Bring into the working folder of a node what only other nodes' ranks made, changed or removed.

Often one rank writes the checkpoint that all read, because the script comes from a shared disk. The
copies stay the other node's: they are listed in a file, so that they are not taken for files of
this node, and they are replaced when the other node's change.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from allranks import folder_trees
from allranks.core.data.node_changes import GONE, MOST, Change
from allranks.core.data.state_manifest import is_path, stays_inside
from allranks.core.data.working_set import FILES

_LIST = "copies"
# Inode, size and modification time of each copy; None: other nodes' ranks removed it.
Copies = Mapping[str, tuple[int, int, int] | None]


def lacking(changes: Mapping[str, Change], part: Path) -> dict[str, Change]:
    """Those of other nodes' ``changes`` that are not in a node's ``part`` yet. Raises OSError."""
    copies = copies_of(part)
    return {
        path: change
        for path, change in changes.items()
        if not (path in copies and _is_there(part / FILES / path, change, copies[path]))
    }


def bring(changes: Mapping[str, Change], folders: Mapping[str, Path], part: Path) -> list[str]:
    """Make all of other nodes' ``changes`` in a node's ``part``, with copies of the files that are
    in these ``folders``. Return the paths that have to be left out. No rank runs. Raises
    OSError."""
    own, beside, left_out = part / FILES, part / "copy", list[str]()
    _forget(part, changes)
    to_do = lacking(changes, part)
    with folder_trees.open_file(part / _LIST, "ab", buffering=0) as listed:

        def list_first(path: str, identity: tuple[int, int, int] | None) -> None:
            """So that no copy is taken for the node's own file."""
            listed.write(json.dumps([path, identity]).encode() + b"\n")

        for path, change in sorted(to_do.items(), key=lambda item: (item[1].what != GONE, item)):
            target = own / path
            if change.what == GONE:
                if _is_free(own, target) and os.path.lexists(target):
                    list_first(path, None)
                    _remove(own, target)
                continue
            beside.unlink(missing_ok=True)
            if not _is_free(own, target) or not _copy(folders[path] / path, change, beside, path):
                left_out.append(path)
                continue
            list_first(path, _identity(beside))
            with _unchanged(next(above for above in target.parents if above.exists())):
                target.parent.mkdir(parents=True, exist_ok=True)
                beside.rename(target)
    return left_out


def copies_of(part: Path) -> Copies:
    """The copies in a node's part. Raises OSError."""
    try:
        with folder_trees.open_file(part / _LIST) as file:
            lines = file.read(MOST).splitlines()
        # A killed agent wrote half a line.
        listed = [json.loads(line) for line in lines if line.endswith(b"]")]
        copies = {path: identity and tuple(map(int, identity)) for path, identity in listed}
    except FileNotFoundError:
        return {}
    except (RecursionError, TypeError, ValueError):
        raise OSError(errno.EINVAL, "not a list of copies", str(part / _LIST)) from None
    return {path: copies[path] for path in copies if is_path(f"{FILES}/{path}")}


def remove_copies(part: Path) -> tuple[set[str], set[str]]:
    """Remove the copies that no rank has changed, and folders that are empty then. Return the paths
    that are as other nodes' ranks left them, and those of copies that ranks here have removed.
    Raises OSError."""
    own, same, removed = part / FILES, set[str](), set[str]()
    for path, identity in copies_of(part).items():
        target = own / path
        if not os.path.lexists(target):
            (removed if identity else same).add(path)
        elif _is_free(own, target) and identity == _identity(target):
            same.add(path)
            with contextlib.suppress(OSError):
                _remove(own, target)
    (part / _LIST).unlink(missing_ok=True)
    return same, removed


def _forget(part: Path, changes: Mapping[str, Change]) -> None:
    """Remove the copies of what no other node has any more. Raises OSError."""
    copies, own = copies_of(part), part / FILES
    for path in copies.keys() - changes.keys():
        target = own / path
        is_there = os.path.lexists(target) and _is_free(own, target)
        if is_there and _identity(target) == copies[path]:
            _remove(own, target)
    lines = (json.dumps([path, copies[path]]) for path in copies if path in changes)
    with folder_trees.open_file(part / "copies.new", "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    (part / "copies.new").replace(part / _LIST)


def _copy(source: Path, change: Change, beside: Path, path: str) -> bool:
    """Put what ``source`` is ``beside``; False if that is not possible. Raises OSError."""
    if change.what == "link":
        if not stays_inside(f"{FILES}/{path}", change.target):
            return False
        beside.symlink_to(change.target)
        return True
    try:
        if not stat.S_ISREG(source.lstat().st_mode):
            return False
        shutil.copy2(source, beside, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_there(place: Path, change: Change, copied: tuple[int, int, int] | None) -> bool:
    if change.what == GONE or not os.path.lexists(place):
        return change.what == GONE and not os.path.lexists(place)
    if change.what == "link":
        return place.is_symlink() and os.readlink(place) == change.target
    identity = _identity(place)
    return identity == copied and identity[1:] == (change.size, change.mtime_ns)


def _is_free(own: Path, target: Path) -> bool:
    """Whether a file may be in that place: no folder, and below folders only. Links may lead to
    users' data."""
    if folder_trees.is_too_long(str(target)) or (target.is_dir() and not target.is_symlink()):
        return False
    folder = target.parent
    while folder != own:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            return False
        folder = folder.parent
    return True


def _remove(own: Path, target: Path) -> None:
    """Remove a file, and the folders that are empty then."""
    with _unchanged(target.parent):
        target.unlink()
    with contextlib.suppress(OSError):  # not empty
        for folder in target.relative_to(own).parents[:-1]:
            with folder_trees.same_time((own / folder).parent):
                (own / folder).rmdir()


@contextlib.contextmanager
def _unchanged(folder: Path) -> Iterator[None]:
    """Meanwhile its owner may write to the folder, which has its mode and its time again then."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    with folder_trees.same_time(folder):
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
