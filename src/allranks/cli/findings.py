"""What doctor finds: fine, worth knowing, or in the way; each with its mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from allranks.cli import show

OK, NOTE, BAD = "ok", "note", "bad"
_MARKS = {OK: "✓", NOTE: "·", BAD: "✗"}


class Finding(NamedTuple):
    """One thing looked at; ``node`` where it is a node's own."""

    what: str
    state: str
    found: str
    hint: str = ""
    node: int | None = None


def present(findings: Sequence[Finding], *, json: bool) -> int:
    """Print them all; the exit code: 1 when something is in the way."""
    if json:
        show.as_json([each._asdict() for each in findings])
    else:
        for each in findings:
            print(f"{_MARKS[each.state]} {each.what:<14} {each.found}")
            if each.hint:
                print(f"  {'':<14} hint: {each.hint}")
    return 1 if any(each.state == BAD for each in findings) else 0
