"""Tell whether two processes see the same data at a path, without sending it.

One of them picks ranges of files at random. Both hash what lies there, with the names, sizes and
times of files and folders; the one that picked compares. A copy has other times, and so has an
empty folder of the same name.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# The entries that are compared at most, the ranges that are read, and the bytes of one.
_MOST, _RANGES, _LENGTH = 20_000, 8, 64 << 10
# The parts of a sample, the bytes of one, and those of the smallest file that is sampled.
_PARTS, _PART, SAMPLED = 16, 4 << 10, 32 << 20


class Range(NamedTuple):
    """A part of a file; ``name`` is its path in the folder, empty for a single file."""

    name: str
    offset: int
    length: int


def pick(path: str) -> list[Range]:
    """Random ranges of the data. Raises OSError."""
    files = [(name, size) for name, size, _ in _entries(path) if size > 0]
    picked = []
    for _ in range(min(_RANGES, len(files))):
        name, size = secrets.choice(files)
        picked.append(Range(name, secrets.randbelow(size), _LENGTH))
    return picked


def fingerprint(path: str, nonce: str, ranges: Sequence[Range]) -> str:
    """A hash of what the names, sizes and times are, and of the content of ``ranges``. Raises
    OSError."""
    digest = hashlib.sha256(nonce.encode())
    for name, size, rest in _entries(path):
        digest.update(f"{name}\0{size}\0{rest}\0".encode(errors="surrogateescape"))
    for item in ranges:
        digest.update(_read(f"{path}/{item.name}" if item.name else path, item))
    return digest.hexdigest()


def sample(path: str, size: int) -> str:
    """A hash of parts of a file of ``size`` bytes: that of other content is almost always another
    one. Raises OSError."""
    digest = hashlib.sha256(str(size).encode())
    for number in range(_PARTS):
        digest.update(_read(path, Range("", size * number // _PARTS, _PART)))
    return digest.hexdigest()


def _entries(path: str) -> Iterator[tuple[str, int, str]]:
    """The name, the size (-1 of what is no file), and the time or target of each, in an order that
    both sides have."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        yield "", status.st_size if stat.S_ISREG(status.st_mode) else -1, str(status.st_mtime_ns)
        return
    yield "", -1, str(status.st_mtime_ns)
    folders, count = [""], 0
    while folders:
        folder = folders.pop()
        with os.scandir(f"{path}/{folder}") as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            name = f"{folder}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                yield name, status.st_size, str(status.st_mtime_ns)
            elif stat.S_ISDIR(status.st_mode):
                yield name, -1, str(status.st_mtime_ns)
            elif stat.S_ISLNK(status.st_mode):
                yield name, -1, os.readlink(entry.path)
            else:
                yield name, -1, str(stat.S_IFMT(status.st_mode))
            if stat.S_ISDIR(status.st_mode):
                folders.append(f"{name}/")
            count += 1
            if count == _MOST:
                return


def _read(path: str, part: Range) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileNotFoundError(2, "it is no file any more", path)
        return os.pread(file, min(part.length, _LENGTH), part.offset)
    finally:
        os.close(file)
