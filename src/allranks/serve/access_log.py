"""The access log: a line of JSON for each request."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

# Bytes of the file, of which the one before is kept as well.
_LARGEST = 10 << 20


class AccessLog:
    """``write`` never fails: a full disk keeps no request from its answer."""

    def __init__(self, path: Path, largest: int = _LARGEST) -> None:
        self._path, self._largest = path, largest

    def write(self, entry: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
                is_full = file.tell() > self._largest
            if is_full:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
