"""Find lines in the file ALLRANKS_METRICS_FILE of which the server leaves something out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.agent.transport.tails import read_lines

_FORM = '{"points": [[NAME, RANK, STEP, SECONDS SINCE THE EPOCH, VALUE]]} or {"tags": {KEY: VALUE}}'
# Characters of a line that are shown.
_SHOWN = 60
_PASSED_OVER = "a hole, or 16 MB without a newline"


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
        # Whether something of a wrong line is recorded.
        self._in_part = False

    def look(self, last: bool = False) -> None:
        """Check the complete lines that are new; the ``last`` time also an incomplete one."""
        try:
            file = folder_trees.open_file(self._file)
        except OSError:
            return  # nothing was logged
        from allranks.core.metrics import metric_lines  # lazy: most ranks log nothing

        with file:
            while True:
                begins, lines = read_lines(file, self._offset)
                if begins > self._offset:
                    self._add(_Wrong(self._lines + 1, _PASSED_OVER))
                self._offset = begins + len(lines)
                if not lines:
                    break
                for line in lines.split(b"\n")[:-1]:
                    self._lines += 1
                    parsed = metric_lines.read(line)
                    if not parsed.is_whole:
                        self._in_part |= bool(parsed.points or parsed.tags)
                        self._add(_Wrong(self._lines, _shown(line)))
            file.seek(self._offset)
            if last and (line := file.read(_SHOWN * 4)):
                self._add(_Wrong(self._lines + 1, _shown(line)))

    def notes(self) -> list[dict[str, Any]]:
        """One for the record, if a line was wrong."""
        if self._first is None:
            return []
        number, text = self._first
        more = f" and {self._count - 1} more" if self._count > 1 else ""
        part = ", or not all that it says" if self._in_part else ""
        message = f"line {number}{more} of ALLRANKS_METRICS_FILE recorded nothing{part}: {text!r}"
        return [{"message": f"{message}; a line is {_FORM}, and ends with a newline"}]

    def _add(self, wrong: _Wrong) -> None:
        self._count += 1
        self._first = self._first or wrong


def _shown(line: bytes) -> str:
    text = line.rstrip(b"\r\n").decode(errors="replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
