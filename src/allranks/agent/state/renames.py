"""Which files were put in place by a rename, by the kernel's own word (inotify).

Metadata cannot tell: after a write and a rename within one tick of the kernel's clock both times
are equal, and some file systems use a freed inode at once for the next file.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Set
from pathlib import Path

# Of <sys/inotify.h>.
_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x4000, 0x8000, 1 << 24, 1 << 25, 1 << 30
_MASK = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLYDIR | _DONT_FOLLOW
_EVENT = struct.Struct("iIII")


class Renames:
    """The files below ``root`` that a rename has put in place and nobody has written to since.
    Empty where the kernel offers no more watches; not thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        self._renamed: set[str] = set()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def watch(self, folders: Iterable[str]) -> None:
        """Watch these folders from now on. Those that are watched already only get their current
        path."""
        for folder in folders if self._file >= 0 else ():
            path = os.fsencode(self._root / folder)
            watch = self._libc.inotify_add_watch(self._file, path, _MASK)
            if watch >= 0:
                self._folders[watch] = folder

    def look(self) -> Set[str]:
        """Their paths. A file that is written to after this has another fingerprint."""
        while self._file >= 0:
            try:
                data = os.read(self._file, 1 << 16)
            except BlockingIOError:
                break
            self._take(data)
        return self._renamed

    def _take(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            if mask & _OVERFLOW or (mask & _ISDIR and mask & (_MOVED_FROM | _MOVED_TO)):
                # Something is unknown, or a watched folder has another path.
                self._renamed.clear()
                self._folders.clear()
            elif mask & _IGNORED:
                self._folders.pop(watch, None)
            elif watch in self._folders and not mask & _ISDIR:
                path = f"{self._folders[watch]}/{name}"
                if mask & _MOVED_TO:
                    self._renamed.add(path)
                else:
                    self._renamed.discard(path)
