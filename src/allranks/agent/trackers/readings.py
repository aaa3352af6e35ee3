"""What readers find in a tracker's files."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from allranks.core.metrics import metric_lines
from allranks.core.text import printable

T = TypeVar("T")
# Bytes of an image that are kept, and read at a time of a file.
LARGEST_IMAGE, PIECE = 10 << 20, 1 << 20
# Characters of a parameter's value that are kept, of a name, and points in a line.
_VALUE, _NAME, _LINE = 1000, 1000, 500
# Characters of what is wrong with a row, and of the names of its values together.
_PROBLEM, _NAMES = 160, 8 << 20
# What reading a row of a job may raise.
_MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


class Point(NamedTuple):
    """``at`` is in seconds since the epoch. Without a value: the points of that name before it are
    void from that step on."""

    name: str
    step: int
    at: float
    value: float | None


class Image(NamedTuple):
    """``source`` is the path of a file as the job says it, which may be any, or the image itself;
    None if it is too large. ``suffix``: `.png`."""

    name: str
    step: int
    suffix: str
    source: Path | bytes | None


class Reading(NamedTuple):
    """A part of what a file holds. ``run``: the name of the run, once it is known."""

    points: list[Point]
    parameters: dict[str, str]
    images: list[Image]
    run: str = ""


class BadRows:
    """Rows of a file that cannot be recorded: how many, and what is wrong with the first."""

    def __init__(self) -> None:
        self.count, self._first = 0, ""

    def add(self, problem: str | Exception) -> None:
        self.count += 1
        if not self._first:
            text = printable(str(problem) or type(problem).__name__)
            self._first = text if len(text) <= _PROBLEM else f"{text[:_PROBLEM]}…"

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count a row that cannot be read inside."""
        try:
            yield
        except _MALFORMED as error:
            self.add(error)

    def message(self) -> str:
        """For a person; empty if there are none."""
        rows = f"{self.count} rows are" if self.count > 1 else "1 row is"
        first = "the first: " if self.count > 1 else ""
        return f"{rows} not in the metrics; {first}{self._first}" if self.count else ""


class Reader(Protocol):
    """Reads a file that grows."""

    # What is wrong with the file, for a person, or empty: what follows cannot be read.
    damage: str
    bad: BadRows

    def read(self, is_last: bool = False) -> Iterator[Reading]:
        """What was appended since the last time, in parts of bounded size; the last time also what
        counts only when the run is over. Raises OSError."""


def lines(rows: Sequence[Sequence[Any]], bad: BadRows, length: int = _LINE) -> Iterator[bytes]:
    """Points as in ALLRANKS_METRICS_FILE, in lines of at most ``length`` points. Those that the
    server would leave out are ``bad``."""
    good = []
    for row in rows:
        if (point := metric_lines.read_point(row)) is None:
            bad.add(f"a point of {row[0]!r} at step {row[2]!r}, time {row[3]!r}")
        else:
            (name, rank, _), values = point
            good.append([name, rank, *values])
    for at in range(0, len(good), length):
        yield json.dumps({"points": good[at : at + length]}).encode() + b"\n"


def short(items: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    """The items of a row, whose names repeat those of the mappings around them, up to 8 MB of
    names. Raises ValueError for more."""
    length = 0
    for item in items:
        length += len(item[0])
        if length > _NAMES:
            raise ValueError(f"its names have more than {_NAMES >> 20} MB")
        yield item


def numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in a value by name; those in a mapping are `NAME.KEY`. Raises ValueError."""
    if len(name) > _NAME:
        raise ValueError(f"a name is longer than {_NAME} characters: {name[:20]!r}")
    if isinstance(value, (int, float)):
        yield name, _number(value)
    elif isinstance(value, dict) and "_type" not in value:
        for key, below in value.items():
            yield from numbers(f"{name}.{key}", below)


def parameters(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of a configuration as text by name; those in a mapping are `NAME.KEY`. Raises
    ValueError."""
    if len(prefix) > _NAME:
        raise ValueError(f"a name is longer than {_NAME} characters: {prefix[:20]!r}")
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from parameters(value, f"{name}.")
        else:
            yield name, parameter_text(value)


def parameter_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if value > 0 else -math.inf
