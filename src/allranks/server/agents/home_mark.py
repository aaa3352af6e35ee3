"""Mark the home, so that nodes can tell whether they see it."""

from __future__ import annotations

import os
import secrets

from allranks.plan.home_mark import HomeMark, renewed
from allranks.settings import Home


def mark_home(home: Home) -> HomeMark | None:
    """Write a new mark into the home; None if that fails, and then no node can tell."""
    mark = secrets.token_hex(16)
    beside = home.mark.with_suffix(f".{os.getpid()}.new")
    try:
        before = home.mark.read_text() if home.mark.exists() else ""
        beside.touch(mode=0o600)
        beside.write_text(renewed(mark, before))
        beside.replace(home.mark)
    except OSError:
        beside.unlink(missing_ok=True)
        return None
    return {"path": str(home.mark), "mark": mark}
