"""The access log: a line of JSON for each request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from json.encoder import encode_basestring_ascii
from pathlib import Path

# Bytes of the file, of which the one before is kept as well.
_LARGEST = 10 << 20


def quoted(value: bytes | None) -> str:
    """As JSON."""
    return "null" if value is None else encode_basestring_ascii(value.decode("latin-1"))


# Of values that come again and again.
quoted_again = functools.lru_cache(256)(quoted)


class AccessLog:
    """``write`` never fails: a full disk keeps no request from its answer. The lines of one turn of
    the event loop are written at once. The file stays open."""

    def __init__(self, path: Path, largest: int = _LARGEST) -> None:
        self._path, self._largest = path, largest
        self._file: int | None = None
        self._size = 0
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        data = "".join(self._lines).encode()
        self._lines.clear()
        with contextlib.suppress(OSError):
            if self._file is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
                self._size = os.fstat(self._file).st_size
            self._size += os.write(self._file, data)
            if self._size > self._largest:
                self.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
