"""Live lines at the bottom of a terminal, below finished lines that scroll."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]?|[^\[]|$)")
# The default terminal size.
_COLUMNS, _ROWS = 80, 24


def can_redraw(stream: Any) -> bool:
    """Whether it is a terminal that supports erasing."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class LiveLines:
    """The unfinished line of each rank on the terminal ``fd``, using at most half of its height.

    Erasing, scrolling and drawing are one write, to avoid flicker.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # The width of each shown line.
        self._shown: list[int] = []

    def erased(self) -> bytes:
        """The text that erases the live lines and moves the cursor to their start."""
        if not self._shown:
            return b""
        # A terminal that was made narrower has wrapped them.
        columns = self._size()[0]
        rows = sum(max(1, -(-wide // columns)) for wide in self._shown)
        self._shown = []
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J".encode()

    def redrawn(self, finished: bytes, rests: Sequence[tuple[str, bytearray]]) -> bytes:
        """The text that writes finished lines, and unfinished ones with prefixes below them."""
        columns, rows = self._size()
        begun = self.erased() + finished
        most = max(1, rows // 2)
        # Only the beginning of an endless line is visible.
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
    """Its text without colours and control characters."""
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
    """Its width in terminal columns."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
