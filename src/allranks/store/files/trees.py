"""Trees: folders of files, each named by the hash of its manifest; never changed once there.

``FOLDER/DIGEST/manifest.json`` says of each file its path, size and SHA-256, in their order;
``FOLDER/DIGEST/files`` holds them, read-only. What is being put together lies beside, and is
renamed once it is whole: a half one is never seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from allranks.errors import Conflict, NotFound, UsageError
from allranks.plan.data.model_flavor import belongs_to

# What is being put together is called so.
COMING = ".coming-"
_MANIFEST, _FILES = "manifest.json", "files"
_PLAIN = "a model is plain files: name another path, or put copies in the place of links"


class Entry(NamedTuple):
    """A file of a tree; ``path`` is below the tree."""

    path: str
    size: int
    sha256: str


class Coming(NamedTuple):
    """A tree that is whole, and not there yet."""

    folder: Path
    digest: str
    entries: tuple[Entry, ...]


class Trees:
    """A folder of trees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self, digest: str) -> Path:
        """Where its files lie."""
        return self.folder / digest / _FILES

    def place(self, digest: str) -> Path:
        """What it is to who reads it: its one file, or the folder of several."""
        entries = self.manifest(digest)
        return self.files(digest) / entries[0].path if _is_one(entries) else self.files(digest)

    def manifest(self, digest: str) -> tuple[Entry, ...]:
        """Raises NotFound for a tree that is not there, or whose manifest is not its own."""
        path = self.folder / digest / _MANIFEST
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            text = b""
        if _digest(text) != digest:
            what = "is damaged" if text else "is gone"
            hint = "register the same files again: that mends it"
            raise NotFound(f"the manifest of the model {what}", where=str(path), hint=hint)
        return tuple(Entry(**each) for each in json.loads(text))

    @contextlib.contextmanager
    def copied(self, sources: Mapping[str, Path]) -> Iterator[Coming]:
        """Copies of files, by the paths they get, to be kept; what was not kept when the block ends
        is gone. Raises Conflict for a file that changes meanwhile, and OSError."""
        self.folder.mkdir(exist_ok=True, mode=0o700)
        folder = self.folder / f"{COMING}{secrets.token_hex(8)}"
        folder.mkdir()
        try:
            entries = tuple(
                _copied(sources[path], folder / _FILES / path, path) for path in sorted(sources)
            )
            text = json.dumps([each._asdict() for each in entries]).encode()
            (folder / _MANIFEST).write_bytes(text)
            yield Coming(folder, _digest(text), entries)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, coming: Coming) -> None:
        """Have it there, if it is not."""
        if not (goal := self.folder / coming.digest).exists():
            coming.folder.rename(goal)

    def mend(self, coming: Coming) -> None:
        """Put what was damaged right, where that very tree is there already. It may be taken away
        meanwhile: then it is not made again, a part of it would be taken for all."""
        tree, spare = self.folder / coming.digest, coming.folder / "spare"
        if not tree.exists():
            return
        wrong = [] if self._knows(coming.digest) else [_MANIFEST]
        files = ((f"{_FILES}/{each.path}", each) for each in coming.entries)
        wrong += [path for path, each in files if not is_whole(tree / path, each)]
        with contextlib.suppress(FileNotFoundError):
            for path in wrong:
                for folder in reversed(Path(path).parents[:-1]):
                    (tree / folder).mkdir(exist_ok=True)
                os.link(coming.folder / path, spare)
                os.replace(spare, tree / path)
        spare.unlink(missing_ok=True)

    def _knows(self, digest: str) -> bool:
        try:
            return bool(self.manifest(digest))
        except NotFound:
            return False


def is_whole(path: Path, entry: Entry) -> bool:
    """Whether the file is what its entry says."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return size == entry.size and _hash(file) == entry.sha256
    except FileNotFoundError:
        return False


def below(path: Path, root: Path) -> dict[str, Path]:
    """The files of a model that lies at ``path``, by the paths they have in it: one and those that
    belong to it, or all of a folder. A link is taken for the file it leads to.

    Raises UsageError for what is no plain file, a link to a folder or out of ``root``, and where
    there is no file at all; OSError.
    """
    root = root.resolve()
    if not path.is_dir():
        beside = [path.name, *belongs_to(path.name, os.listdir(path.parent))]
        return {name: _plain(path.with_name(name), root) for name in beside}
    if not _within(path, root):
        raise _odd(path, "leads elsewhere")
    found = dict(_walked(path, "", root))
    if not found:
        raise _odd(path, "is a folder without any file")
    return found


def _walked(folder: Path, head: str, root: Path) -> Iterator[tuple[str, Path]]:
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _walked(Path(entry.path), f"{head}{entry.name}/", root)
        else:
            yield head + entry.name, _plain(Path(entry.path), root)


def _plain(path: Path, root: Path) -> Path:
    """The file that lies there. Raises UsageError."""
    real = path.resolve()
    if not real.is_file():
        raise _odd(path, "is a link to no file" if path.is_symlink() else "is no plain file")
    if not _within(real, root):
        raise _odd(path, "is a link that leads elsewhere")
    return real


def _within(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _copied(source: Path, goal: Path, name: str) -> Entry:
    goal.parent.mkdir(parents=True, exist_ok=True)
    # What is no plain file any more is not waited for.
    with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise _odd(source, "is no plain file")
        with goal.open("x+b") as copy:
            copy_contents(file, copy, before.st_size)
            copy.seek(0)
            sha256, size = _hash(copy), os.fstat(copy.fileno()).st_size
        after = os.fstat(file.fileno())
    if (size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise Conflict(f"{name!r} changes while it is read", hint="wait until it is written")
    os.utime(goal, ns=(before.st_mtime_ns, before.st_mtime_ns))
    goal.chmod(0o444)
    return Entry(name, size, sha256)


def copy_contents(file: BinaryIO, copy: BinaryIO, left: int) -> None:
    """By the kernel, which copies nothing where both files may share their blocks; where it will
    not, as between two file systems, piece by piece."""
    with contextlib.suppress(OSError):
        while left > 0 and (done := os.copy_file_range(file.fileno(), copy.fileno(), left)):
            left -= done
    if left > 0:
        file.seek(0)
        copy.seek(0)
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _hash(file: BinaryIO) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _is_one(entries: tuple[Entry, ...]) -> bool:
    return len(entries) == 1 and "/" not in entries[0].path


def _odd(path: Path, how: str) -> UsageError:
    # A name that is not UTF-8 cannot be sent as it is.
    where = os.fsencode(path).decode(errors="replace")
    return UsageError(f"{path.name!r} {how}", where=where, hint=_PLAIN)
