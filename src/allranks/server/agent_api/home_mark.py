"""Mark the home, so that nodes can tell it from another folder of that path."""

from __future__ import annotations

import secrets

from allranks.settings import Home

# A node may have the answer of a server that has restarted since.
_KEPT = 4


def mark_home(home: Home) -> str | None:
    """Write a new mark into the home, an empty file. Returns its path; None if that fails, and then
    no node can tell."""
    mark = home.marks / secrets.token_hex(16)
    try:
        home.marks.mkdir(mode=0o700, exist_ok=True)
        earlier = sorted(home.marks.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in earlier[: 1 - _KEPT]:
            file.unlink()
        mark.touch()
    except OSError:
        return None
    return str(mark)
