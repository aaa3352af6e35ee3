"""The user's code as it is now: a list of chunks, named by the hash of that list.

What chunks hold is remembered by how their files look, so that code that did not change is known
without reading it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from allranks.errors import CodeTooLarge, NotFound, UsageError
from allranks.plan.amounts import size_text
from allranks.plan.job.code_size import MOST_BYTES, MOST_FILES, is_too_large, largest
from allranks.plan.progress import OnProgress, Progress, unheard
from allranks.snapshot import chunks
from allranks.snapshot.files import File, walk

LARGE = 300 << 20
# A file changed so lately may change again and look the same: clocks of file systems are coarse.
_LATELY = 2.0
# How many chunks are remembered, of all folders.
_REMEMBERED = 20_000


class Snapshot(NamedTuple):
    """``digest`` is that of ``manifest``; ``parts`` the chunks by their digests."""

    digest: str
    manifest: bytes
    parts: Mapping[str, chunks.Chunk]
    files: tuple[str, ...]
    size: int

    def open(self, digest: str) -> BinaryIO:
        """A chunk's piece of the tar. Raises UsageError when its files are others by now."""
        found, file = chunks.packed(self.parts[digest])
        if found != digest:
            file.close()
            others = [each.name for each in self.parts[digest] if _is_other(each)]
            raise UsageError(
                "the code changed while it was being sent",
                where=", ".join(others[:3]),
                hint="submit it again; what is written there meanwhile, such as a log, can be left "
                "out by a line in .amlignore",
            )
        return file


def _is_other(file: File) -> bool:
    """Whether it is not what it was when it was looked at."""
    try:
        now = os.lstat(file.path)
    except OSError:
        return True
    then = file.status
    return (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns)


def take_snapshot(
    code: Path,
    note: Callable[[str], None] = lambda sentence: None,
    memory: Path | None = None,
    allow_large: bool = False,
    progress: OnProgress = unheard,
) -> Snapshot:
    """Snapshot a folder or a single file; ``note`` hears at once what a person should know.
    ``memory`` is a file in which this remembers what it has read.

    Raises NotFound or UsageError with the path; unless ``allow_large``, CodeTooLarge before any
    file is read.
    """
    try:
        return _take(code, note, memory, allow_large, progress)
    except OSError as error:
        raise UsageError(
            f"the code cannot be read: {(error.strerror or str(error)).lower()}",
            where=str(error.filename or code),
            hint="leave that out by a line in .amlignore, or name the folder of your script: "
            "--code DIR",
        ) from error


def _take(
    code: Path,
    note: Callable[[str], None],
    memory: Path | None,
    allow_large: bool,
    progress: OnProgress,
) -> Snapshot:
    if not code.exists():
        raise NotFound(
            "there is no such file or folder",
            where=str(code),
            hint="`code:` (--code) names the folder that is sent along; its path begins where the "
            "job's file, or you, are",
        )
    if code.resolve() == Path("/"):
        raise UsageError(
            "the code folder is the root of the file system",
            where=str(code),
            hint="go to the folder of your script, or name it: --code DIR",
        )
    notes: list[str] = []
    found = walk(code, notes)
    size = sum(file.status.st_size for file in found)
    if is_too_large(len(found), size) and not allow_large:
        raise _refused(code, size, found)
    if size > LARGE:
        notes.append(_large(code, size, found))
    for sentence in notes:
        note(sentence)
    parts = _parts(found, _Memory(memory), size, progress)
    manifest = json.dumps({"chunks": [*parts], "files": len(found), "size": size}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    return Snapshot(digest, manifest, parts, tuple(file.name for file in found), size)


def _parts(
    found: list[File], memory: _Memory, size: int, progress: OnProgress
) -> dict[str, chunks.Chunk]:
    parts: dict[str, chunks.Chunk] = {}
    done = 0
    for chunk in chunks.split(found):
        progress(Progress("reading the code", done, size))
        done += sum(file.status.st_size for file in chunk)
        looks = chunks.looks(chunk)
        digest = memory.known.get(looks)
        if digest is None:
            digest, file = chunks.packed(chunk)
            file.close()
        memory.learn(looks, digest, chunk)
        parts[digest] = chunk
    memory.keep()
    return parts


class _Memory:
    """Digests of chunks by the looks of their files. Losing it costs time, no more."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.known: dict[str, str] = {}
        self._new = False
        if file is not None:
            with contextlib.suppress(OSError, ValueError):
                self.known = json.loads(file.read_text())

    def learn(self, looks: str, digest: str, chunk: chunks.Chunk) -> None:
        newest = max(max(f.status.st_mtime, f.status.st_ctime) for f in chunk)
        if looks not in self.known and time.time() - newest > _LATELY:
            self.known[looks] = digest
            self._new = True

    def keep(self) -> None:
        if self._file is None or not self._new:
            return
        kept = dict([*self.known.items()][-_REMEMBERED:])
        with contextlib.suppress(OSError):
            beside = self._file.with_suffix(f".{os.getpid()}.new")
            beside.write_text(json.dumps(kept))
            beside.replace(self._file)


def _refused(root: Path, size: int, found: list[File]) -> CodeTooLarge:
    limits = ["500 MB"] * (size > MOST_BYTES) + ["20,000 files"] * (len(found) > MOST_FILES)
    return CodeTooLarge(
        f"the code has {size_text(size)} ({len(found):,} files), and the limit is "
        f"{' and '.join(limits)}. The largest in it:{_largest(found)}",
        where=str(root),
        hint="name the folder of your script: --code DIR; leave data out by lines in .amlignore; "
        "or send all of it: --allow-large-code (in Python allow_large_code=True)",
    )


def _large(root: Path, size: int, found: list[File]) -> str:
    return (
        f"the code in {root} has {size >> 20} MB and travels with every job; "
        f"leave out data by lines in .amlignore. The largest in it:{_largest(found)}"
    )


def _largest(found: list[File]) -> str:
    entries = largest((file.name, file.status.st_size) for file in found)
    return "".join(f"\n  {entry}" for entry in entries)
