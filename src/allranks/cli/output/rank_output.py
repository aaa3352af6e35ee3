"""Print the output of ranks: complete lines, and unfinished ones live on a terminal."""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from allranks.cli.output import show
from allranks.cli.output.colours import coloured
from allranks.cli.output.folded_lines import FoldedLines
from allranks.cli.output.live_lines import LiveLines, can_redraw
from allranks.cli.output.phases import every
from allranks.core.amounts import ranges

if TYPE_CHECKING:
    from allranks.api.jobs import LogLine

# Moves the cursor or erases; colours are kept.
_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-HJKSTfsu]")
# A nested bar as tqdm draws it: one line down, the bar, up again.
_BELOW = re.compile(rb"\n([^\n]*?)\x1b\[A")
# The depth of nested bars that is handled.
_DEPTH = 8
# Above this number of ranks, equal lines are joined on a terminal.
_FOLD_ABOVE = 8
# Seconds that a line waits for other ranks, and between looks for lines that have waited.
_WAIT, _RELEASE = 0.1, 0.05


class Printer:
    """Writes the output of ranks to stdout line by line, so lines are never mixed.

    A line redrawn with carriage returns, such as a progress bar, is written once in its last state.
    On a terminal, unfinished lines are shown live below the others, and what would steer it is
    shown as text. With ``raw``, lines are written as the rank wrote them. ``label`` names the job
    of a piece that has a ``child``. With ``fold``, the number of ranks whose equal lines are joined
    on a terminal, lines wait for ``release`` or ``end``.
    """

    def __init__(
        self,
        nodes: int,
        to: Any = None,
        prefixed: bool | None = None,
        raw: bool = False,
        label: Callable[[str], str] = str,
        fold: int = 0,
    ) -> None:
        stream = to or sys.stdout
        self._out = stream.buffer
        self._prefixed = stream.isatty() if prefixed is None else prefixed
        self._colours = coloured(stream)
        self._nodes, self._raw, self._label = nodes, raw, label
        self._harmless = stream.isatty() and not raw
        self._live = LiveLines(stream.fileno()) if not raw and can_redraw(stream) else None
        folds = fold > _FOLD_ABOVE and self._harmless and self._prefixed
        self._folded = FoldedLines(fold) if folds else None
        self._nodes_of_ranks: dict[int, int] = {}
        # The unfinished line of each child, rank and attempt, and its prefix.
        self._rests: dict[tuple[str, int, int], tuple[str, bytearray]] = {}

    def put(self, piece: LogLine) -> None:
        attempt, rank, child = piece["attempt"], piece["rank"], piece.get("child", "")
        data = piece["log"].encode(errors="surrogateescape")
        own = (child, rank, attempt)
        before, rest = self._rests.setdefault(own, ("", bytearray()))
        if self._prefixed and not before:
            self._nodes_of_ranks[rank] = piece["node"]
            before = self._prefix(child, rank, piece["node"])
            self._rests[own] = (before, rest)
        done = b""
        for key in [key for key in self._rests if key[:2] == own[:2] and key < own]:
            done += self._ended(key)
        if b"\x1b[A" in data and not self._raw:
            data = _flattened(bytes(rest) + data)
            rest.clear()
        whole, newline, last = data.rpartition(b"\n")
        if newline:
            done += self._lines(rank, before, bytes(rest) + whole + newline)
            rest.clear()
        rest += last
        if b"\r" in last and not self._raw:
            rest[:] = last_state(bytes(rest))
        self._write(done)

    def _prefix(self, child: str, rank: int, node: int) -> str:
        if not child:
            return show.prefix(rank, node, self._nodes, colours=self._colours)
        name = self._label(child)
        return f"{name} rank {rank} | " if rank else f"{name} | "

    def hide(self) -> None:
        """Erase the live lines until the next output, so that others can write to the terminal."""
        if self._live is not None:
            self._out.write(self._live.erased())
            self._out.flush()

    @property
    def is_live(self) -> bool:
        """Whether an unfinished line is shown."""
        return self._live is not None and any(rest for _, rest in self._rests.values())

    @property
    def folds(self) -> bool:
        """Whether equal lines of ranks are joined, so that lines wait."""
        return self._folded is not None

    def release(self, clear: Callable[[], None]) -> None:
        """Write the lines that have waited long enough for those of other ranks. ``clear`` is
        called before."""
        if lines := self._joined(time.monotonic() - _WAIT):
            clear()
            self._write(lines)

    def end(self, child: str | None = None) -> None:
        """Write unfinished lines, or those of a child, with a line end."""
        keys = [key for key in self._rests if child in (None, key[0])]
        ended = b"".join([self._ended(key) for key in keys])
        self._write(ended + self._joined(math.inf))

    def _ended(self, key: tuple[str, int, int]) -> bytes:
        before, rest = self._rests.pop(key)
        text = bytes(rest) if self._raw else last_state(bytes(rest)).rstrip(b"\r")
        return self._lines(key[1], before, text + b"\n") if text else b""

    def _lines(self, rank: int, before: str, lines: bytes) -> bytes:
        """Finished lines as they are written."""
        collapse = b"\r" in lines and not self._raw
        if collapse:
            lines = b"".join(last_state(line + b"\n") for line in lines.split(b"\n")[:-1])
        if self._harmless:
            lines = harmless(lines)
        if not before:
            return lines
        if self._folded is not None:
            self._folded.put(rank, lines.split(b"\n")[:-1], time.monotonic())
            return self._joined(math.inf) if self._folded.is_full else b""
        return b"".join(before.encode() + line + b"\n" for line in lines.split(b"\n")[:-1])

    def _joined(self, until: float) -> bytes:
        """The lines that came before ``until``, or that all ranks have printed, joined."""
        if self._folded is None:
            return b""
        lines = self._folded.take(until)
        return b"".join(self._prefix_of(ranks).encode() + line + b"\n" for ranks, line in lines)

    def _prefix_of(self, ranks: list[int]) -> str:
        if len(ranks) > 1:
            return f"ranks {ranges(ranks)} | "
        return self._prefix("", ranks[0], self._nodes_of_ranks[ranks[0]])

    def _write(self, lines: bytes) -> None:
        if self._live is not None:
            rests = sorted(self._rests.items())
            lines = self._live.redrawn(lines, [rest for _, rest in rests])
        if lines:
            self._out.write(lines)
            self._out.flush()


def releasing(
    printer: Printer, lock: threading.Lock, clear: Callable[[], None] = lambda: None
) -> AbstractContextManager[None]:
    """Write the lines that a printer holds in time, under the lock. For ``clear`` see
    ``Printer.release``."""
    if not printer.folds:
        return nullcontext()
    return every(_RELEASE, lock, lambda: printer.release(clear))


def last_state(line: bytes) -> bytes:
    """The final appearance of a line with carriage returns. Its line end (LF, CR LF or a last CR)
    is kept."""
    text = line.rstrip(b"\r\n")
    if b"\r" not in text:
        return line
    state = _MOVES.sub(b"", text[text.rfind(b"\r") + 1 :])
    return (b"" if state.isspace() else state) + line[len(text) :]


def _flattened(text: bytes) -> bytes:
    """Nested bars as states of one line."""
    for _ in range(_DEPTH):
        text, count = _BELOW.subn(rb"\r\1\r", text)
        if not count:
            break
    return text


# ESC that begins neither a colour nor "erase to the end of the line", which `grep --color` and
# compilers write after colours; other controls but tab and line ends; 8-bit controls (C1); what
# changes the direction of text (U+061C, U+200E-F, U+202A-E, U+2066-9). The class comes first
# because `re` searches for one quickly.
_STEERS = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xc2\xd8\xe2]"
    rb"(?:(?<=\x1b)(?!\[(?:[0-9;:]*m|0?K))|(?<=[\x00-\x1a\x1c-\x1f\x7f])"
    rb"|(?<=\xc2)[\x80-\x9f]|(?<=\xd8)\x9c"
    rb"|(?<=\xe2)(?:\x80[\x8e\x8f\xaa-\xae]|\x81[\xa6-\xa9]))"
)
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\r"})
# 8-bit controls that are no part of UTF-8, as `surrogateescape` decodes them.
_BYTES = re.compile("[\udc80-\udc9f]")


def harmless(lines: bytes) -> bytes:
    r"""Whole lines with `^[`, `^G`, `\x9b` or `\u202e` in place of what would steer a terminal.

    A rank could set its title or clipboard, clear the screen, or turn letters around so that a line
    reads as another. Colours are kept."""
    if lines.isascii():
        if len(lines.translate(None, _CONTROLS)) == len(lines):
            return lines  # nearly all output; three times as fast as the pattern
    else:
        try:
            lines.decode()
        except UnicodeDecodeError:
            text = lines.decode(errors="surrogateescape")
            text = _BYTES.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
            lines = text.encode(errors="surrogateescape")
    return _STEERS.sub(_as_text, lines)


def _as_text(match: re.Match[bytes]) -> bytes:
    code = ord(match[0].decode())
    if code < 0x80:
        return b"^" + bytes([code ^ 0x40])
    return b"\\x%02x" % code if code < 0x100 else b"\\u%04x" % code
