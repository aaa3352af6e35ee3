"""Tables on a terminal: fitted to its width, numbers right-aligned, statuses coloured."""

from __future__ import annotations

import re
from collections.abc import Sequence

from allranks.cli.output import colours
from allranks.cli.output.live_lines import width

# `12`, `-0.5`, `1e-05`, `98 %`, `3.4 MB`, `3.4 MB of 8 MB`, `2 min 05 s`, `8 on 2`.
_AMOUNT = r"[-+]?[\d.,]+(e[-+]?\d+)?( ?[A-Za-zµ/%]{1,5})?"
_NUMBER = re.compile(f"{_AMOUNT}(( of| on)? {_AMOUNT})?")
# The placeholder for no value.
_NOTHING = ("", "-")
_STATES = ("STATUS", "STATE")
# The minimum width of a column.
_LEAST = 6
_GAP = "  "
_PARTS = re.compile(r"\033\[[\d;]*m|.")


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None, coloured: bool
) -> list[str]:
    """The lines of a table of at most ``columns`` columns; None for no limit.

    The widest columns are cut first, the row's name last. Numbers and statuses are not cut; columns
    at the right that still do not fit are dropped.
    """
    numbers = [_is_numbers([row[i] for row in rows]) for i in range(len(head))]
    widths = [max(map(width, (row[i] for row in (head, *rows)))) for i in range(len(head))]
    if columns is not None:
        fixed = [number or name in _STATES for number, name in zip(numbers, head, strict=True)]
        widths = _shrunk(widths, head, fixed, columns - len(_GAP) * (len(head) - 1))
    lines = []
    for row in (head, *rows):
        cells = []
        for i, text in enumerate(row):
            shown = cut(text, widths[i])
            room = " " * (widths[i] - width(shown))
            style = ""
            if coloured:
                style = colours.BOLD if row is head else _style(head[i], text)
            shown = colours.paint(shown, style)
            cells.append(room + shown if numbers[i] else shown + room)
        lines.append(_GAP.join(cells).rstrip())
    return lines if columns is None else [clipped(line, columns) for line in lines]


def wrapped(text: str, columns: int) -> list[str]:
    """The text in lines that end between words; a longer word has a line of its own."""
    lines, left = [""], columns
    for word in re.findall(r"\s*\S+|\s+$", text):
        if width(word) > left and lines[-1]:
            word = word.lstrip()
            lines.append("")
            left = columns
        lines[-1] += word
        left -= width(word)
    return lines


def cut(text: str, columns: int) -> str:
    """The text, cut with an ellipsis."""
    if width(text) <= columns:
        return text
    kept, left = "", columns - 1
    for char in text:
        left -= width(char)
        if left < 0:
            break
        kept += char
    return f"{kept}…"[: max(0, columns)]


def clipped(line: str, columns: int) -> str:
    """A line with colours, cut to the width."""
    shown, left = "", columns
    for part in _PARTS.findall(line):
        left -= 0 if part[0] == "\033" else width(part)
        shown += part if left >= 0 or part[0] == "\033" else ""
    return shown


def _style(head: str, text: str) -> str:
    return colours.of_status(text) if head in _STATES else ""


def _is_numbers(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell not in _NOTHING]
    return bool(filled) and all(map(_NUMBER.fullmatch, filled))


def _shrunk(widths: list[int], head: Sequence[str], fixed: Sequence[bool], room: int) -> list[int]:
    """The widths, reduced until they fit: text first, then its headers, then the row's name, which
    is what people copy."""
    heads = [max(_LEAST, width(each)) for each in head]
    leasts = [_LEAST] * len(head)
    texts = [i for i in range(1, len(head)) if not fixed[i]]
    names = [] if fixed[0] else [0]
    for several, least in ((texts, heads), (texts, leasts), (names, leasts)):
        while sum(widths) > room:
            wide = [i for i in several if widths[i] > least[i]]
            if not wide:
                break
            widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths
