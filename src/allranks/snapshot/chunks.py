"""Code in chunks: runs of files as pieces of one tar, each named by its hash.

Where a chunk ends is said by the names of the files alone, so that a change in one file makes one
new chunk, and all the others are there already. Put one after the other they are the whole tar.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from allranks.snapshot.files import File

# One name in so many ends a chunk, and whatever comes to so many bytes.
_ONE_IN = 64
_LARGE = 4 << 20
# A chunk up to this size is made in memory, a larger one on disk.
_IN_MEMORY = 64 << 20

Chunk = Sequence[File]


def split(files: Sequence[File]) -> Iterator[Chunk]:
    """The files in chunks, in their order."""
    chunk: list[File] = []
    size = 0
    for file in files:
        if chunk and file.status.st_size >= _LARGE:
            # By itself: it does not travel again with every change beside it.
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += file.status.st_size
        if size >= _LARGE or zlib.crc32(os.fsencode(file.name)) % _ONE_IN == 0:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def looks(chunk: Chunk) -> str:
    """A word for how its files look, without reading them: where they lie, size, times, number."""
    told = hashlib.sha256()
    for path, name, status in chunk:
        told.update(
            f"{path}\0{name}\0{status.st_mode}\0{status.st_size}\0{status.st_mtime_ns}\0"
            f"{status.st_ctime_ns}\0{status.st_ino}\0".encode(errors="surrogateescape")
        )
    return told.hexdigest()


def packed(chunk: Chunk) -> tuple[str, BinaryIO]:
    """The chunk's digest, and its piece of the tar. Raises OSError."""
    file: BinaryIO = io.BytesIO()
    if sum(each.status.st_size for each in chunk) > _IN_MEMORY:
        import tempfile  # lazy: 15 ms, and few chunks are so large

        file = tempfile.TemporaryFile()  # noqa: SIM115 (handed on)
    # Not closed: that would write the end of a tar, and others follow.
    archive = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)
    for each in chunk:
        _add(archive, each)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest(), file


def _add(archive: tarfile.TarFile, file: File) -> None:
    # Owners and other bits than "executable" would make the same code a different snapshot.
    info = archive.gettarinfo(file.path, file.name)
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = int(file.status.st_mtime)
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    # Two names of one file are two files: their chunks may travel alone.
    if info.islnk():
        info.type, info.linkname = tarfile.REGTYPE, ""
    if info.isreg():
        with open(file.path, "rb") as content:
            info.size = os.fstat(content.fileno()).st_size
            archive.addfile(info, content)
    else:
        archive.addfile(info)
