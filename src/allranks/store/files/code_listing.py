"""The files of a snapshot, read from its chunks: whoever submits a job may have written them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks.errors import UsageError
from allranks.store.files.blobs import Blobs

if TYPE_CHECKING:
    from allranks.tars import Entry


class CodeFile(NamedTuple):
    """A file or link of the code as it is when unpacked. ``mtime`` in seconds."""

    size: int
    mtime: int
    target: str

    def is_unchanged(self, path: str | Path, status: os.stat_result) -> bool:
        """Whether what lies at ``path`` is as it was unpacked."""
        if self.target:
            return stat.S_ISLNK(status.st_mode) and os.readlink(path) == self.target
        same = (status.st_size, status.st_mtime_ns) == (self.size, self.mtime * 10**9)
        return same and stat.S_ISREG(status.st_mode)


def code_entries(blobs: Blobs, digest: str | None) -> Iterator[Entry]:
    """The entries of a snapshot; read each before the next. None without a snapshot. Raises
    NotFound, and AllranksError for chunks that no agent would unpack."""
    for chunk in blobs.parts(digest) if digest is not None else ():
        yield from chunk_entries(chunk)


def chunk_entries(chunk: Path) -> Iterator[Entry]:
    """As ``code_entries``, of one chunk."""
    from allranks.tars import stream_entries  # lazy: a server starts without tarfile

    with chunk.open("rb") as file:
        for entry in stream_entries("the job's code", file, seeks=True, has_end=False):
            if entry.name.startswith("/") or ".." in entry.name.split("/"):
                message = f"{entry.name[:255]!r} in the job's code would lie outside of it"
                raise UsageError(message, hint="submit the job again")
            yield entry


def content_text(entry: Entry) -> str:
    """The hash of a file, or where a link leads."""
    if entry.kind != "file":
        return f"-> {entry.target}"
    content = hashlib.sha256()
    for piece in entry.content():
        content.update(piece)
    return content.hexdigest()


def code_files(blobs: Blobs, digest: str | None) -> dict[str, CodeFile]:
    """The files of a snapshot by their paths; none without a snapshot. Raises as
    ``code_entries``."""
    return {
        entry.name: CodeFile(entry.size, int(entry.mtime or 0), entry.target)
        for entry in code_entries(blobs, digest)
    }


def contents(blobs: Blobs, digest: str | None, paths: Collection[str]) -> dict[str, str]:
    """A text for the content of each of these ``paths`` that a snapshot has. Raises as
    ``code_entries``."""
    entries = code_entries(blobs, digest if paths else None)
    return {
        entry.name: f"{entry.mode} {content_text(entry)}"
        for entry in entries
        if entry.name in paths
    }
