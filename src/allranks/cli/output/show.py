"""Output of commands: tables, times, a status line. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allranks.cli.output import colours
from allranks.cli.output.colours import coloured
from allranks.core.amounts import counted, seconds_text
from allranks.core.text import one_line as one_line
from allranks.errors import UsageError

_BARS = "▁▂▃▄▅▆▇█"
# The number of names to print of many.
_NAMED = 3
_COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)


def as_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that fits the terminal; in a pipe, as wide as needed."""
    terminal = sys.stdout.isatty()
    if not terminal and not coloured(sys.stdout):
        for row in table(head, rows):
            print(row)
        return
    from allranks.cli.output import tables  # lazy: only on a terminal

    head, *rows = [[one_line(cell) for cell in row] for row in (head, *rows)]
    # 0: unknown terminal size.
    wide = os.get_terminal_size(sys.stdout.fileno()).columns or None if terminal else None
    for row in tables.fitted(head, rows, wide, coloured(sys.stdout)):
        print(row)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Its lines."""
    head, *rows = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    several = ([cell.ljust(w) for cell, w in zip(r, widths, strict=True)] for r in (head, *rows))
    return ["  ".join(cells).rstrip() for cells in several]


def safe_lines(text: str) -> list[str]:
    """The lines of any text, as they may be printed."""
    return [one_line(line) for line in text.expandtabs().split("\n")]


def can_ask() -> bool:
    """Whether somebody can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Ask on a terminal; whether the answer is yes."""
    print(f"{one_line(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def yes_option(add: Callable[..., object]) -> None:
    add("-y", "--yes", action="store_true", help="do not ask; needed without a terminal")


def may_destroy(options: Any, what: str) -> bool:
    """Whether to ``what`` ("delete …"): with --yes, or if the answer on the terminal is yes. Raises
    UsageError where nobody can answer."""
    if options.yes:
        return True
    if not can_ask():
        message = f"without a terminal this needs --yes: {what}"
        raise UsageError(message, where="--yes", hint="add --yes if it is meant")
    if confirmed(f"{what}?"):
        return True
    talk("nothing is changed")
    return False


def talk(text: str = "", status: str = "") -> None:
    """Print messages to stderr; they may contain any text. The job's ``status`` is coloured."""
    lines = safe_lines(text)
    if coloured(sys.stderr):
        lines = [colours.sentence(each) for each in lines]
        painted = colours.paint(status, colours.of_status(status))
        lines = [each.replace(f": {status}", f": {painted}", 1) for each in lines]
    print("\n".join(lines), file=sys.stderr, flush=True)


def field(name: str, value: str) -> None:
    """Print a name and its value, which may be any text of several lines. A terminal gets them
    broken between words."""
    parts = safe_lines(value)
    beside = max(11, len(name))
    if sys.stdout.isatty():
        from allranks.cli.output import tables  # lazy: only on a terminal

        columns = os.get_terminal_size(sys.stdout.fileno()).columns or 80  # 0: unknown
        room = columns - beside - 1
        parts = [line for part in parts for line in tables.wrapped(part, max(20, room))]
    for part in parts:
        print(f"{one_line(name):<{beside}} {part}")
        name = ""


def line(text: str) -> None:
    """Print and flush, also into a pipe."""
    print(one_line(text), flush=True)


def as_line(data: Any) -> None:
    """Print an item as one line of JSON."""
    print(json.dumps(data), flush=True)


def listing(
    options: Any, data: Any, head: Sequence[str], rows: Sequence[Sequence[str]], empty: str = ""
) -> int:
    """Print data with --json, else the table of its rows, or ``empty`` without any. Returns 0."""
    if options.json:
        as_json(data)
    elif empty and not rows:
        talk(empty)
    else:
        columns(head, rows)
    return 0


def result(options: Any, data: Any, *sentences: str) -> int:
    """Print a command's result: JSON with --json, else sentences unless --quiet. Returns 0."""
    if options.json:
        as_json(data)
    elif not options.quiet:
        for sentence in sentences:
            talk(sentence)
    return 0


# What is left out of a job's files.
NO_FILES = "links that lead to no file of the job, or special files"


def several(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(one_line, names[:_NAMED])) + more


def too_long(paths: Sequence[str]) -> str:
    """The note that files of a job cannot be read."""
    begun = [f"{path[:60]}…" for path in paths]
    return f"note: left out, because the path is too long for Linux: {several(begun)}"


def number(value: float | str | None) -> str:
    """A metric's value; other values as text."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.6g}"


def sparkline(
    values: Sequence[float | str | None], least: float | None = None, full: float | None = None
) -> str:
    """A sparkline of the values, from the least on, with gaps for values that are not finite. A
    bar is full at the greatest, or at ``full`` if that is more."""
    numbers = [value for value in values if isinstance(value, int | float)]
    if not numbers:
        return ""
    if least is None:
        least = min(numbers)
    span = max(numbers if full is None else [*numbers, full]) - least
    marks = [
        _BARS[round((value - least) / span * 7) if span else 0]
        if isinstance(value, int | float)
        else " "
        for value in values
    ]
    return "".join(marks)


def seconds(count: float) -> str:
    return seconds_text(count)


def moment(at: str | None, absent: str = "-") -> str:
    """A time of the API as people read it: `2026-11-27 13:04:37 UTC`."""
    return absent if at is None else f"{at[:19].replace('T', ' ')} UTC"


def size(job: Mapping[str, Any]) -> str:
    return f"{counted(job['nodes'], 'node')}, {counted(job['processes'], 'rank')}"


def prefix(rank: int, node: int, nodes: int, *, colours: bool) -> str:
    """The prefix of a rank's lines; with ``colours``, one colour per rank."""
    name = f"rank {rank}" if nodes == 1 else f"node {node} rank {rank}"
    if not colours:
        return f"{name} | "
    return f"\033[{_COLOURS[rank % len(_COLOURS)]}m{name} |\033[0m "


class StatusLine:
    """One line on stderr that is overwritten; silent unless stderr is a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self._on = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    @property
    def is_on(self) -> bool:
        """Whether it is shown."""
        return self._on

    def say(self, text: str) -> None:
        if self._on:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0: unknown
            dim, off = ("\033[2m", "\033[0m") if coloured(sys.stderr) else ("", "")
            sys.stderr.write(f"\r{dim}{one_line(text)[: max(10, width - 1)]}{off}\033[K")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._shown = False
