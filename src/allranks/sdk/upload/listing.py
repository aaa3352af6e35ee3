"""List the files of a path that is uploaded.

Links that stay inside are kept as links; what others lead to is uploaded in their place. What is
neither a file nor a folder is left out, and told.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from allranks.core.amounts import counted
from allranks.core.text import flaw
from allranks.core.transfer_progress import OnProgress, Progress
from allranks.errors import DataTooLarge, NotFound, UsageError
from allranks.folder_trees import LONGEST
from allranks.snapshot.files import stays_inside

# More is uploaded only if somebody says so.
MOST_FILES = 200_000

Note = Callable[[str], None]
# Device and inode of the folders above, the innermost first.
Above = tuple["Above", tuple[int, int]] | None


class Source(NamedTuple):
    """A file: its path in the upload, which is empty for a single file, and on this disk."""

    path: str
    file: str
    status: os.stat_result


class Listing(NamedTuple):
    """What is at a path. ``links`` are paths and targets, ``folders`` have nothing in them."""

    name: str
    sources: list[Source]
    links: list[tuple[str, str]]
    folders: list[str]

    @property
    def size(self) -> int:
        return sum(source.status.st_size for source in self.sources)


class _Folder(NamedTuple):
    path: str
    file: str
    above: Above


def list_data(root: Path, note: Note, progress: OnProgress, allow_large: bool) -> Listing:
    """The files at ``root``. ``note`` receives what is left out. Raises NotFound, UsageError for
    what cannot be read, and DataTooLarge for too many files unless ``allow_large``."""
    made = Listing(_name(root), [], [], [])
    try:
        status = os.stat(root)
        if stat.S_ISREG(status.st_mode):
            made.sources.append(Source("", str(root), status))
            return made
        if not stat.S_ISDIR(status.st_mode):
            hint = "name a file or a folder"
            raise UsageError("neither a file nor a folder", where=str(root), hint=hint)
        pending = [_Folder("", str(root), (None, (status.st_dev, status.st_ino)))]
        while pending:
            pending += _read(pending.pop(), made, note)
            if len(made.sources) > MOST_FILES and not allow_large:
                raise too_large(root, f"more than {MOST_FILES:,} files")
            progress(Progress(f"{made.name}: {counted(len(made.sources), 'file')}"))
    except FileNotFoundError as error:
        hint = "it must exist until it is uploaded"
        raise NotFound("no such file or folder", where=_text(error, root), hint=hint) from None
    except OSError as error:
        raise unreadable(error, root) from None
    return made


def too_large(root: Path, amount: str) -> DataTooLarge:
    return DataTooLarge(
        f"this would upload {amount}",
        where=str(root),
        hint="upload it with --allow-large-data (in Python allow_large_data=True); or put it where "
        "the nodes can read it, and name that place",
    )


def unreadable(error: OSError, root: Path) -> UsageError:
    return UsageError(
        f"the data cannot be read: {(error.strerror or str(error)).lower()}",
        where=_text(error, root),
        hint="make it readable, or move it away; nothing was registered",
    )


def _text(error: OSError, root: Path) -> str:
    return os.fsencode(error.filename or root).decode(errors="replace")


def _name(root: Path) -> str:
    name = root.name or root.resolve().name
    return name if name not in ("", ".", "..") and not flaw(name) else "data"


def _read(folder: _Folder, made: Listing, note: Note) -> Iterator[_Folder]:
    """Add what is in a folder; yields the folders in it. Raises OSError."""
    with os.scandir(folder.file) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    if not entries and folder.path:
        made.folders.append(folder.path)
    for entry in entries:
        path = f"{folder.path}/{entry.name}" if folder.path else entry.name
        if len(os.fsencode(path)) > LONGEST:
            hint = "rename its folders"
            raise UsageError("a path is too long", where=f"{path[:80]}…", hint=hint)
        if entry.is_symlink():
            yield from _link(entry, path, folder, made, note)
        else:
            yield from _entry(
                entry.path, path, entry.stat(follow_symlinks=False), folder, made, note
            )


def _entry(
    file: str, path: str, status: os.stat_result, folder: _Folder, made: Listing, note: Note
) -> Iterator[_Folder]:
    if stat.S_ISREG(status.st_mode):
        made.sources.append(Source(path, file, status))
    elif stat.S_ISDIR(status.st_mode):
        yield _Folder(path, file, (folder.above, (status.st_dev, status.st_ino)))
    else:
        note(f"not uploaded: {_shown(path)} (neither a file nor a folder)")


def _link(
    entry: os.DirEntry[str], path: str, folder: _Folder, made: Listing, note: Note
) -> Iterator[_Folder]:
    target = os.readlink(entry.path)
    if stays_inside(path, target):
        made.links.append((path, target))
        return
    try:
        status = os.stat(entry.path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        note(f"not uploaded: {_shown(path)} (a link to {_shown(target)}: {reason})")
        return
    if _is_above((status.st_dev, status.st_ino), folder.above):
        note(f"not uploaded: {_shown(path)} (a link to a folder that it is in)")
        return
    yield from _entry(entry.path, path, status, folder, made, note)


def _is_above(folder: tuple[int, int], above: Above) -> bool:
    while above is not None:
        above, item = above
        if item == folder:
            return True
    return False


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")
