"""What files and code hold, as short texts that are equal only for equal content."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from allranks import folder_trees
from allranks.store.files.blobs import Blobs
from allranks.store.files.code_listing import code_entries, content_text

# Data up to this many bytes is read and compared by content, larger data by its files' metadata.
_READ = 256 << 20
# Files whose digests are remembered.
_MOST = 100_000


class Contents:
    """Digests of files and folders. A file is read again when its metadata has changed."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._digests: dict[tuple[int, ...], str] = {}
        self._lock = threading.Lock()

    def of_data(self, path: Path) -> str | None:
        """What a file or a folder holds; None if it does not exist or cannot be read."""
        try:
            entries = [*_entries(path)]
            read = sum(status.st_size for _, _, status in entries) <= _READ
            whole = hashlib.sha256()
            for name, file, status in entries:
                mode = status.st_mode
                if stat.S_ISLNK(mode):
                    content = self._of_link(path, file)
                elif stat.S_ISDIR(mode):
                    content = "folder"
                elif read and stat.S_ISREG(mode):
                    content = self._of_file(file, status)
                else:
                    content = " ".join(map(str, _metadata(status)))
                whole.update(f"{name}\0{content}\0".encode(errors="surrogateescape"))
        except OSError:
            return None
        return f"{'content' if read else 'files'} {whole.hexdigest()}"

    def of_code(self, digest: str | None) -> str:
        """What a snapshot holds: names, modes and contents of its files, without their times."""
        return "" if digest is None else _of_snapshot(self._blobs, digest)

    def _of_link(self, root: Path, link: str) -> str:
        """A link and what it leads to. Raises OSError for a folder elsewhere, or nothing."""
        target = os.path.realpath(link)
        status = os.stat(link)
        if stat.S_ISREG(status.st_mode):
            return f"-> {os.readlink(link)} {self._of_file(target, status)}"
        if not Path(target).is_relative_to(root.resolve()):
            raise OSError(f"{link} leads out of the data")
        return f"-> {os.readlink(link)}"

    def _of_file(self, path: str, status: os.stat_result) -> str:
        key = (status.st_dev, *_metadata(status))
        if (cached := self._digests.get(key)) is not None:
            return cached
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = (status.st_dev, *_metadata(os.fstat(file.fileno())))
        if after != key:
            return f"changing {digest} {after}"
        with self._lock:
            if len(self._digests) >= _MOST:
                self._digests.clear()
            self._digests[key] = digest
        return digest


def _metadata(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _entries(path: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """The name below ``path``, the path and the metadata of each file, link and empty folder."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        yield "", str(path), status
        return
    for folder, folders, files in folder_trees.walk(path):
        folders.sort()
        below = os.path.relpath(folder, path)
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        if not files and not folders:
            yield below, folder, os.lstat(folder)
        for name in sorted([*files, *links]):
            file = os.path.join(folder, name)
            yield os.path.join(below, name), file, os.lstat(file)


@lru_cache(maxsize=1024)
def _of_snapshot(blobs: Blobs, digest: str) -> str:
    whole = hashlib.sha256()
    for entry in code_entries(blobs, digest):
        text = f"{entry.name}\0{entry.mode}\0{content_text(entry)}\0"
        whole.update(text.encode(errors="surrogateescape"))
    return whole.hexdigest()
