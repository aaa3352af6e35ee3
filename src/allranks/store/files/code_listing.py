"""The files of a snapshot, read from the headers of its chunks."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from allranks.store.files.blobs import Blobs

if TYPE_CHECKING:
    import tarfile


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


def code_files(blobs: Blobs, digest: str | None) -> dict[str, CodeFile]:
    """The files of a snapshot by their paths; none without a snapshot. Raises NotFound."""
    if digest is None:
        return {}
    files = {}
    for part in blobs.parts(digest):
        with part.open("rb") as file:
            for header in _headers(file):
                files[header.name] = CodeFile(header.size, int(header.mtime), header.linkname)
    return files


def contents(blobs: Blobs, digest: str | None, paths: Collection[str]) -> dict[str, str]:
    """A text for the content of each of these ``paths`` that a snapshot has. Raises NotFound."""
    texts: dict[str, str] = {}
    for part in blobs.parts(digest) if digest is not None and paths else ():
        with part.open("rb") as file:
            for header in _headers(file):
                if header.name in paths:
                    file.seek(header.offset_data)
                    data = file.read(header.size) if header.isreg() else b""
                    text = hashlib.sha256(data).hexdigest()
                    texts[header.name] = f"{header.mode} {header.linkname} {text}"
    return texts


def _headers(file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """The headers of a snapshot's chunk, which has no end mark."""
    import tarfile  # lazy: few requests read into code

    with tarfile.open(fileobj=file, mode="r:", ignore_zeros=True) as archive:
        yield from archive
