"""Files that a killed process has left in part, in place of the complete ones before them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from enum import Enum
from typing import BinaryIO

from allranks.core.data.state_manifest import Entry

_PIECE = 4 << 20
_ZIP, _ZIP_END, _ZIP_TAIL = b"PK\x03\x04", b"PK\x05\x06", (1 << 16) + 22
# They recover by themselves, from files beside them that have to be of the same moment.
_DATABASE = b"SQLite format 3\0"
_BESIDE_DATABASE = ("-wal", "-journal", "-shm")


class Deaths:
    """When the ranks of an attempt on this node ended by force, in seconds since the epoch.
    ``begun``: whether one was killed or told to end; ``killed``: when the last one was ended by a
    signal, None if each has ended by itself. One thread writes this, others read it."""

    begun = False
    killed: float | None = None

    def kill(self, at: float) -> None:
        self.begun, self.killed = True, max(at, self.killed or at)


class Left(Enum):
    """What a killed writer left of a file. GROWING: a log or a database, which goes on from there.
    WHOLE: all of another content; TORN: most likely a part of one."""

    GROWING = "growing"
    WHOLE = "whole"
    TORN = "torn"


def left(path: str, file: BinaryIO, before: Entry) -> Left:
    """What is left of a file that was changed in place, and was complete as ``before``. A zip,
    which PyTorch and NumPy write, shows it; others are torn if they are shorter. Raises OSError."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(len(_DATABASE))
    if head == _DATABASE or path.endswith(_BESIDE_DATABASE):
        return Left.GROWING
    if head.startswith(_ZIP):
        file.seek(max(0, size - _ZIP_TAIL))
        return Left.WHOLE if _ZIP_END in file.read() else Left.TORN
    if size < before.size:
        return Left.TORN
    return Left.GROWING if _begins_with(file, before) else Left.WHOLE


def set_aside(files: Mapping[str, Left]) -> set[str]:
    """The files that go back to what they were: torn ones, and with them whole ones of the same
    folder, which may be of the same checkpoint."""
    folders = {os.path.dirname(path) for path, kind in files.items() if kind is Left.TORN}
    return {
        path
        for path, kind in files.items()
        if kind is Left.TORN or (kind is Left.WHOLE and os.path.dirname(path) in folders)
    }


def _begins_with(file: BinaryIO, before: Entry) -> bool:
    digest, rest = hashlib.sha256(), before.size
    file.seek(0)
    while rest and (piece := file.read(min(_PIECE, rest))):
        digest.update(piece)
        rest -= len(piece)
    return digest.hexdigest() == before.sha256
