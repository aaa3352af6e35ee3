"""Find wrong lines in the file ALLRANKS_METRICS_FILE, which the server drops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

_FORM = '{"points": [[NAME, RANK, STEP, SECONDS SINCE THE EPOCH, VALUE]]} or {"tags": {KEY: VALUE}}'
# Bytes read at a time, and of a line that are shown.
_PIECE, _SHOWN = 1 << 20, 60


class _Wrong(NamedTuple):
    """A line by number, from 1."""

    number: int
    text: str


class LoggedLines:
    """``look`` reads what was appended to ``file``; it is for one thread at a time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = self._lines = self._count = 0
        self._first: _Wrong | None = None

    def look(self, last: bool = False) -> None:
        """Check the complete lines that are new; the ``last`` time also an incomplete one."""
        try:
            file = self._file.open("rb")
        except OSError:
            return  # nothing was logged
        with file:
            file.seek(self._offset)
            while lines := file.readlines(_PIECE):
                for line in lines:
                    if not line.endswith(b"\n"):
                        if last:
                            self._found(_Wrong(self._lines + 1, _shown(line)))
                        return
                    self._offset += len(line)
                    self._lines += 1
                    if not is_valid(line):
                        self._found(_Wrong(self._lines, _shown(line)))

    def notes(self) -> list[dict[str, Any]]:
        """One for the record, if a line was wrong."""
        if self._first is None:
            return []
        number, text = self._first
        more = f" and {self._count - 1} more" if self._count > 1 else ""
        message = f"line {number}{more} of ALLRANKS_METRICS_FILE recorded nothing: {text!r}"
        return [{"message": f"{message}; a line is {_FORM}, and ends with a newline"}]

    def _found(self, wrong: _Wrong) -> None:
        self._count += 1
        self._first = self._first or wrong


def is_valid(line: bytes) -> bool:
    """Whether the server records what a line says: see `metric_points` and `tags_of`."""
    from allranks.plan.lifecycle.validate_event import LATEST  # lazy: most ranks log nothing

    try:
        told = json.loads(line)
        tags = told.get("tags")
        points = told.get("points")
        for _, rank, step, at, value in points or ():
            float(value)
            if not (-(2**63) <= int(step) < 2**63 and 0 <= float(at) <= LATEST):
                return False
            if rank is not None and not -(2**31) <= int(rank) < 2**31:
                return False
        return points is not None or isinstance(tags, dict)
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        return False


def _shown(line: bytes) -> str:
    text = line.rstrip(b"\r\n").decode(errors="replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
