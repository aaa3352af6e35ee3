"""Printing ranks' output: whole lines as they are finished, unfinished ones live on a terminal."""

from __future__ import annotations

import re
import sys
from typing import Any

from allranks.cli.output import show
from allranks.cli.output.colours import coloured
from allranks.cli.output.live_lines import LiveLines, can_redraw

# Moves the cursor or erases; colours are kept.
_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-HJKSTfsu]")
# A bar below another one, as tqdm draws it: down a line, the bar, up again.
_BELOW = re.compile(rb"\n([^\n]*?)\x1b\[A")
# Bars below bars are handled to this depth.
_DEPTH = 8


class Printer:
    """Writes ranks' output to stdout line by line, so that no rank's line is cut by another's.

    A line that its rank redraws with carriage returns, such as a progress bar, is written once, in
    its last state. On a terminal, unfinished lines are shown live below the others. With ``raw``,
    lines are written as the rank wrote them.
    """

    def __init__(
        self, nodes: int, to: Any = None, prefixed: bool | None = None, raw: bool = False
    ) -> None:
        goal = to or sys.stdout
        self._out = goal.buffer
        self._prefixed = goal.isatty() if prefixed is None else prefixed
        self._colours = coloured(goal)
        self._nodes, self._raw = nodes, raw
        self._live = LiveLines(goal.fileno()) if not raw and can_redraw(goal) else None
        # The unfinished line of each attempt and rank, and its prefix.
        self._rests: dict[tuple[int, int], tuple[str, bytearray]] = {}

    def put(self, piece: dict[str, Any]) -> None:
        attempt, rank = piece["attempt"], piece["rank"]
        data = piece["log"].encode(errors="surrogateescape")
        before, rest = self._rests.setdefault((attempt, rank), ("", bytearray()))
        if self._prefixed and not before:
            before = show.prefix(rank, piece["node"], self._nodes, colours=self._colours)
            self._rests[attempt, rank] = (before, rest)
        done = b""
        for key in [key for key in self._rests if key[1] == rank and key[0] < attempt]:
            done += self._ended(key)
        if b"\x1b[A" in data and not self._raw:
            data = _flattened(bytes(rest) + data)
            rest.clear()
        whole, newline, last = data.rpartition(b"\n")
        if newline:
            done += self._lines(before, bytes(rest) + whole + newline)
            rest.clear()
        rest += last
        if b"\r" in last and not self._raw:
            rest[:] = last_state(bytes(rest))
        self._write(done)

    def hide(self) -> None:
        """Erase the live lines until there is more output: somebody else writes to the terminal."""
        if self._live is not None:
            self._out.write(self._live.erased())
            self._out.flush()

    @property
    def is_live(self) -> bool:
        """Whether there is an unfinished line, which a terminal shows at its bottom."""
        return self._live is not None and any(rest for _, rest in self._rests.values())

    def end(self) -> None:
        """Write what ranks left without an end of line, with one."""
        self._write(b"".join(self._ended(key) for key in list(self._rests)))

    def _ended(self, key: tuple[int, int]) -> bytes:
        before, rest = self._rests.pop(key)
        text = bytes(rest) if self._raw else last_state(bytes(rest)).rstrip(b"\r")
        return self._lines(before, text + b"\n") if text else b""

    def _lines(self, before: str, lines: bytes) -> bytes:
        """Finished lines as they are written."""
        collapse = b"\r" in lines and not self._raw
        if not before and not collapse:
            return lines
        each = lines.split(b"\n")[:-1]
        states = (last_state(line + b"\n") if collapse else line + b"\n" for line in each)
        return b"".join(before.encode() + state for state in states)

    def _write(self, lines: bytes) -> None:
        if self._live is not None:
            rests = sorted(self._rests.items(), key=lambda each: each[0][1])
            lines = self._live.redrawn(lines, [rest for _, rest in rests])
        if lines:
            self._out.write(lines)
            self._out.flush()


def last_state(line: bytes) -> bytes:
    """What a terminal shows in the end of a line that may be redrawn with carriage returns. Its end
    (LF, CR LF, or a CR after which nothing was drawn yet) is kept."""
    text = line.rstrip(b"\r\n")
    if b"\r" not in text:
        return line
    state = _MOVES.sub(b"", text[text.rfind(b"\r") + 1 :])
    return (b"" if state.isspace() else state) + line[len(text) :]


def _flattened(text: bytes) -> bytes:
    """Bars below bars as states of one line."""
    for _ in range(_DEPTH):
        text, count = _BELOW.subn(rb"\r\1\r", text)
        if not count:
            break
    return text
