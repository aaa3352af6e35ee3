"""Trees: immutable folders of files (registered models), named by the hash of their manifest.

``FOLDER/DIGEST/manifest.json`` lists path, size and SHA-256 of each file, and links that stay
inside; ``FOLDER/DIGEST/files`` has the files, read-only. A new tree is built in a temporary folder
and renamed when complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from allranks import disk_space, folder_trees
from allranks.core.data.model_flavor import belongs_to
from allranks.core.data.state_manifest import stays_inside
from allranks.core.data.working_set import folders_above
from allranks.errors import Conflict, MissingData, NotFound, UsageError
from allranks.store.files.changes import (
    Stored,
    entries_below,
    first_change,
    same_kind,
)

TEMPORARY_PREFIX = ".coming-"
# The prefix of folders that are being deleted, renamed beside their old path.
GOING = ".going-"
FILES = "files"
_MANIFEST, _TIMES = "manifest.json", "times.json"
# The most links that lead to one another; as the kernel's.
_MOST_LINKS = 40
_PLAINFILES_HINT = "a model consists of regular files: use another path, or replace links by copies"


# What becomes a file of a tree, or the text of a link in it.
Source = Path | str


class Entry(NamedTuple):
    """A file of a tree, or a link with its ``target``; ``path`` is that in the tree."""

    path: str
    size: int
    sha256: str
    target: str = ""

    def dump(self) -> dict[str, Any]:
        """A file as 0.1.0 dumps it, so that the same files are the same tree."""
        return {key: value for key, value in self._asdict().items() if key != "target" or value}


class NewTree(NamedTuple):
    """A complete tree in a temporary folder."""

    folder: Path
    digest: str
    entries: tuple[Entry, ...]


class Trees:
    """A folder of trees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self, digest: str) -> Path:
        """The folder of a tree's files."""
        return self.folder / digest / FILES

    def path(self, digest: str) -> Path:
        """The path for readers: the file of a tree with one file, else the folder."""
        entries = self.manifest(digest)
        return (
            self.files(digest) / entries[0].path if _is_single_file(entries) else self.files(digest)
        )

    def manifest(self, digest: str) -> tuple[Entry, ...]:
        """The files of a tree. Raises NotFound if its manifest is missing or damaged."""
        path = self.folder / digest / _MANIFEST
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            text = b""
        if _digest(text) != digest:
            what = "is damaged" if text else "is missing"
            hint = "register the same files again to repair it"
            raise NotFound(f"the manifest of the model {what}", where=str(path), hint=hint)
        return tuple(Entry(**entry) for entry in json.loads(text))

    def require_unchanged(self, digest: str) -> None:
        """Raise MissingData if a tree's files are not what was registered, NotFound as
        ``manifest``."""
        folder, entries = self.folder / digest, self.manifest(digest)
        times = dict[str, int]()
        with contextlib.suppress(OSError, ValueError, TypeError):  # trees of 0.1.0 have none
            times = dict(json.loads((folder / _TIMES).read_text()))
        change = first_change(folder / FILES, _stored(entries), times)
        if change is not None:
            message = f"the model was changed after it was registered: {change}"
            hint = "register the same files again to repair it"
            raise MissingData(message, where=change.where, hint=hint)
        with contextlib.suppress(OSError):
            if times != _times(folder, entries):
                _write_times(folder, entries)

    @contextlib.contextmanager
    def copy(self, sources: Mapping[str, Source]) -> Iterator[NewTree]:
        """Copy files and make links, given by their path in the tree, in a new tree, which is
        deleted at the end of the block unless kept. Follows no links. Raises Conflict for a file
        that changes meanwhile, UsageError for a link that leads outside, and OSError."""
        self.folder.mkdir(exist_ok=True, mode=0o700)
        folder = self.folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        folder.mkdir()
        try:
            # Links last: nothing is written through one.
            order = sorted(sources, key=lambda path: (isinstance(sources[path], str), path))
            made = [_make(sources[path], folder / FILES / path, path) for path in order]
            entries = tuple(sorted(made))
            text = json.dumps([entry.dump() for entry in entries]).encode()
            (folder / _MANIFEST).write_bytes(text)
            _write_times(folder, entries)
            times = folder_trees.newest_times(_times(folder, entries))
            folder_trees.set_times(folder / FILES, times)
            _set_modes(folder / FILES, 0o555)
            yield NewTree(folder, _digest(text), entries)
        finally:
            folder_trees.remove(folder, ignore_errors=True)

    def keep(self, new_tree: NewTree) -> None:
        """Add a new tree, unless it exists."""
        if not (destination := self.folder / new_tree.digest).exists():
            new_tree.folder.rename(destination)

    def repair(self, new_tree: NewTree) -> None:
        """Replace damaged files of an existing tree by those of the same new tree, and remove what
        does not belong to it. If the tree is deleted meanwhile, it is not created again: it would
        be incomplete."""
        tree, spare = self.folder / new_tree.digest, new_tree.folder / "spare"
        if not tree.exists():
            return
        with contextlib.suppress(FileNotFoundError):
            _set_modes(tree / FILES, 0o755)
            _remove_strangers(tree / FILES, _stored(new_tree.entries))
            damaged = [] if self._has_manifest(new_tree.digest) else [_MANIFEST]
            files = ((f"{FILES}/{entry.path}", entry) for entry in new_tree.entries)
            damaged += [path for path, entry in files if not matches(tree / path, entry)]
            for path in damaged:
                for folder in reversed(Path(path).parents[:-1]):
                    (tree / folder).mkdir(exist_ok=True)
                os.link(new_tree.folder / path, spare, follow_symlinks=False)
                os.replace(spare, tree / path)
            _set_modes(tree / FILES, 0o555)
        spare.unlink(missing_ok=True)

    def _has_manifest(self, digest: str) -> bool:
        try:
            return bool(self.manifest(digest))
        except NotFound:
            return False


def _stored(entries: Sequence[Entry]) -> dict[str, Stored]:
    files = {entry.path: Stored(*entry[1:]) for entry in entries}
    return files | dict.fromkeys(folders_above(files), Stored())


def _write_times(folder: Path, entries: Sequence[Entry]) -> None:
    (folder / _TIMES).write_text(json.dumps(_times(folder, entries)))


def _times(folder: Path, entries: Sequence[Entry]) -> dict[str, int]:
    files = [entry.path for entry in entries if not entry.target]
    return {path: os.lstat(folder / FILES / path).st_mtime_ns for path in files}


def _set_modes(top: Path, mode: int) -> None:
    for folder, _, _ in folder_trees.walk(top, topdown=False):
        os.chmod(folder, mode)


def _remove_strangers(top: Path, stored: Mapping[str, Stored]) -> None:
    """Remove what has no place in a tree, or another kind than what has."""
    for path, entry in [*entries_below(top)]:
        if path in stored and same_kind(entry, stored[path]):
            continue
        if entry.is_dir(follow_symlinks=False):
            folder_trees.remove(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)


def matches(path: Path, entry: Entry) -> bool:
    """Whether a file has the size and hash of its entry."""
    if entry.target:
        return path.is_symlink() and os.readlink(path) == entry.target
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return size == entry.size and _hash(file) == entry.sha256
    except FileNotFoundError:
        return False


def leads_to(path: str, entries: Mapping[str, Entry]) -> str:
    """The file of a tree that a link there leads to by its text; '' for a folder, or nothing."""
    for _ in range(_MOST_LINKS):
        above = [*accumulate(path.split("/"), "{}/{}".format)]
        link = next((each for each in above if each in entries and entries[each].target), "")
        if not link:
            return path if path in entries else ""
        there = posixpath.join(posixpath.dirname(link), entries[link].target)
        path = posixpath.normpath(there + path.removeprefix(link))
    return ""


def model_files(path: Path, root: Path) -> dict[str, Source]:
    """The files of the model at ``path``, by their path in the model: a file with those that belong
    to it, or all files of a folder. Links that stay in the folder are kept, others resolved.

    Raises UsageError for other kinds of files, links to other folders or outside ``root``, and a
    folder without files; OSError.
    """
    root = root.resolve()
    if not path.is_dir():
        beside = [path.name, *belongs_to(path.name, os.listdir(path.parent))]
        return {name: _plain(path.with_name(name), root) for name in beside}
    if not _within(path, root):
        raise unsupported(path, "is a link that leads outside")
    files = dict(_walk(path, root))
    if not files:
        raise unsupported(path, "is a folder without files")
    return files


def _walk(folder: Path, root: Path) -> Iterator[tuple[str, Source]]:
    for path in sorted(folder_trees.files(folder)):
        name = os.path.relpath(path, folder)
        yield name, _kept_link(Path(path), name, folder) or _plain(Path(path), root)


def _kept_link(path: Path, name: str, folder: Path) -> str:
    """The text of a link that leads to something in the folder, whatever lies where; else ''."""
    if not path.is_symlink():
        return ""
    target = os.readlink(path)
    if target.startswith(f"{folder}/"):
        target = os.path.relpath(target, path.parent)
    leads = stays_inside(f"{FILES}/{name}", target) and path.exists()
    return target if leads and _within(path, folder.resolve()) else ""


def _plain(path: Path, root: Path) -> Path:
    """The resolved path of a regular file. Raises UsageError."""
    real = path.resolve()
    if not real.is_file():
        is_link = path.is_symlink()
        raise unsupported(path, "is not a link to a file" if is_link else "is not a regular file")
    if not _within(real, root):
        raise unsupported(path, "is a link that leads outside")
    return real


def _within(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _make(source: Source, destination: Path, name: str) -> Entry:
    destination.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, Path):
        return _copy_file(source, destination, name)
    if not stays_inside(f"{FILES}/{name}", source):
        raise unsupported(Path(name), "is a link that leads outside")
    destination.symlink_to(source)
    return Entry(name, 0, "", source)


def _copy_file(source: Path, destination: Path, name: str) -> Entry:
    # A job may meanwhile have put a link, also to a folder, in its place.
    with folder_trees.open_file(source, below="/") as file:
        if disk_space.is_mostly_hole(file.fileno()):
            raise unsupported(Path(name), "is mostly a hole, without data")
        before = os.fstat(file.fileno())
        with destination.open("x+b") as copy:
            copy_contents(file, copy, before.st_size)
            copy.seek(0)
            sha256 = _hash(copy)
            size = os.fstat(copy.fileno()).st_size
        after = os.fstat(file.fileno())
    if (size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise Conflict(f"{name!r} changed while it was read", hint="wait until it is complete")
    os.utime(destination, ns=(before.st_mtime_ns, before.st_mtime_ns))
    destination.chmod(0o444)
    return Entry(name, size, sha256)


def copy_contents(file: BinaryIO, copy: BinaryIO, remaining: int) -> None:
    """Copy a file in the kernel, which shares blocks where it can; piece by piece if the kernel
    refuses, as between some file systems."""
    with contextlib.suppress(OSError):
        while remaining > 0:
            done = os.copy_file_range(file.fileno(), copy.fileno(), remaining)
            if not done:
                break
            remaining -= done
    if remaining > 0:
        file.seek(0)
        copy.seek(0)
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _hash(file: BinaryIO) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _is_single_file(entries: tuple[Entry, ...]) -> bool:
    return len(entries) == 1 and "/" not in entries[0].path


def unsupported(path: Path, how: str) -> UsageError:
    """The error for what no model can have."""
    # Responses are UTF-8, which names of files need not be.
    where = os.fsencode(path).decode(errors="replace")
    return UsageError(f"{path.name!r} {how}", where=where, hint=_PLAINFILES_HINT)
