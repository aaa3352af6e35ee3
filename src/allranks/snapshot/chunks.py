"""Split code into chunks: consecutive files as pieces of one tar, each named by its hash.

Chunk boundaries depend mostly on file names, so that a changed file changes one chunk, and the
server has all others already. The concatenated chunks are the whole tar.
"""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from allranks.snapshot.files import File

if TYPE_CHECKING:
    import tarfile

# A chunk ends after one file name in 64 on average, or at 4 MiB.
_BOUNDARY_DIVISOR = 64
_LARGE = 4 << 20
# Chunks up to this size are pack in memory, larger ones on disk.
_IN_MEMORY = 64 << 20

Chunk = Sequence[File]


def split(files: Sequence[File]) -> Iterator[Chunk]:
    """Split files into chunks, keeping their order."""
    chunk: list[File] = []
    size = 0
    for file in files:
        if chunk and file.status.st_size >= _LARGE:
            # A large file gets its own chunk, so that it is not sent again with its neighbours.
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += file.status.st_size
        if size >= _LARGE or zlib.crc32(os.fsencode(file.name)) % _BOUNDARY_DIVISOR == 0:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def fingerprint(chunk: Chunk) -> str:
    """A hash of the files' metadata: path, mode, size, times, inode."""
    digest = hashlib.sha256()
    for path, name, status, content in chunk:
        digest.update(content or b"")
        digest.update(
            f"{path}\0{name}\0{status.st_mode}\0{status.st_size}\0{status.st_mtime_ns}\0"
            f"{status.st_ctime_ns}\0{status.st_ino}\0".encode(errors="surrogateescape")
        )
    return digest.hexdigest()


def pack(chunk: Chunk) -> tuple[str, BinaryIO]:
    """Pack a chunk. Returns its digest and its piece of the tar. Raises OSError."""
    import tarfile  # lazy: most snapshots are known already

    file: BinaryIO = io.BytesIO()
    if sum(entry.status.st_size for entry in chunk) > _IN_MEMORY:
        import tempfile  # lazy: 15 ms, and few chunks are so large

        file = tempfile.TemporaryFile()  # noqa: SIM115 (handed on)
    # Do not close it: that would write the end of the tar, and other chunks follow.
    archive = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)
    for entry in chunk:
        _add(archive, entry)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    file.seek(0)
    return digest.hexdigest(), file


def _add(archive: tarfile.TarFile, file: File) -> None:
    from tarfile import REGTYPE, TarInfo  # lazy: as above

    if file.content is not None:
        made = TarInfo(file.name)
        made.size = len(file.content)
        archive.addfile(made, io.BytesIO(file.content))
        return
    # Drop owners and all mode bits but "executable", so that the same code gives the same hash.
    info = archive.gettarinfo(file.path, file.name)
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = int(file.status.st_mtime)
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    # Store hard links as separate files: they may be in different chunks.
    if info.islnk():
        info.type, info.linkname = REGTYPE, ""
    if info.isreg():
        with open(file.path, "rb") as content:
            # What was added since it was listed is left out: a log may grow at any time.
            info.size = min(file.status.st_size, os.fstat(content.fileno()).st_size)
            archive.addfile(info, content)
    else:
        archive.addfile(info)
