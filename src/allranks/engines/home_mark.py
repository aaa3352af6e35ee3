"""The identifier of a home among all that use a cluster."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from allranks import folder_trees


class HomeMark:
    """Stored in a file of an engine's ``folder``. A path does not identify a home: two machines may
    each have one at the same path."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "mark"

    def get(self) -> str:
        """Return it, created on first use."""
        if not self._file.exists():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            folder_trees.write_file(self._file, secrets.token_hex(6))
        return self._file.read_text()

    def shown(self) -> str:
        """Return it, or dots: rendering must not create it."""
        return self.get() if self._file.exists() else "…"


def seen_from(folder: Path) -> str:
    """Write a file of a random name into a gang's ``folder``, and return its path: a node that
    finds it sees the home. Another disk at the same path has no such file. Where the folder cannot
    be made, agents say so."""
    file = folder / f"seen-{secrets.token_hex(16)}"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch()
    return str(file)
