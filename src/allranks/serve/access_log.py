"""The access log: a line of JSON for each request."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

# Bytes of the file, of which the one before is kept as well.
_LARGEST = 10 << 20


class AccessLog:
    """``write`` never fails: a full disk keeps no request from its answer. The file stays open."""

    def __init__(self, path: Path, largest: int = _LARGEST) -> None:
        self._path, self._largest = path, largest
        self._file: int | None = None
        self._size = 0

    def write(self, entry: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            if self._file is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
                self._size = os.fstat(self._file).st_size
            self._size += os.write(self._file, json.dumps(entry).encode() + b"\n")
            if self._size > self._largest:
                self.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
