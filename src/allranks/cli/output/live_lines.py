"""Lines at the bottom of a terminal that are redrawn while finished ones scroll above them."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]?|[^\[]|$)")
# The size of a terminal that does not say it.
_COLUMNS, _ROWS = 80, 24


def can_redraw(stream: Any) -> bool:
    """Whether it is a terminal that can erase what it shows."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class LiveLines:
    """The unfinished line of each rank, on the terminal ``fd``: at most half of its height.

    Works on text to write, so that erasing, scrolling and drawing are one write: nothing flickers.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # How wide each of the lines is that are shown.
        self._shown: list[int] = []

    def erased(self) -> bytes:
        """What erases the live lines; the cursor is then where the first one began."""
        if not self._shown:
            return b""
        # A terminal that has become narrower has wrapped them.
        columns = self._size()[0]
        rows = sum(max(1, -(-wide // columns)) for wide in self._shown)
        self._shown = []
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J".encode()

    def redrawn(self, finished: bytes, rests: Sequence[tuple[str, bytearray]]) -> bytes:
        """What writes finished lines, and below them the unfinished ones with their prefixes."""
        columns, rows = self._size()
        begun = self.erased() + finished
        most = max(1, rows // 2)
        # Of a line that never ends only its beginning can be seen.
        texts = ((before, bytes(rest[: columns * 16])) for before, rest in rests)
        live = [(before, text) for before, rest in texts if (text := _plain(rest)).strip()]
        lines = [_cut(before, text, columns - 1) for before, text in live]
        if len(lines) > most:
            more = len(lines) - most + 1
            lines[most - 1 :] = [_cut("", f"… and {more} more ranks", columns - 1)]
        self._shown = [width(_ESCAPES.sub("", line)) for line in lines]
        return begun + "\n".join(lines).encode()

    def _size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self._fd)
        except OSError:
            columns = rows = 0
        return columns or _COLUMNS, rows or _ROWS


def _plain(rest: bytes) -> str:
    """Its text without colours, tabs and whatever else moves the cursor."""
    text = _ESCAPES.sub("", rest.decode(errors="ignore").strip("\r"))
    text = text.rpartition("\r")[2].expandtabs()
    return "".join(char for char in text if char.isprintable())


def _cut(before: str, text: str, columns: int) -> str:
    left = columns - width(_ESCAPES.sub("", before))
    for at, char in enumerate(text):
        left -= width(char)
        if left < 0:
            return before + text[:at]
    return before + text


def width(text: str) -> int:
    """How many columns of a terminal it takes."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
