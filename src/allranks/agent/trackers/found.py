"""What readers find in a tracker's files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

# Bytes of an image that are kept, and read at a time of a file.
LARGEST_IMAGE, PIECE = 10 << 20, 1 << 20
# Characters of a parameter's value that are kept, and points in a line.
_VALUE, _LINE = 1000, 500


class Point(NamedTuple):
    """``at`` is in seconds since the epoch."""

    name: str
    step: int
    at: float
    value: float


class Image(NamedTuple):
    """``source`` is a file, or the image itself; None if it is too large. ``suffix``: `.png`."""

    name: str
    step: int
    suffix: str
    source: Path | bytes | None


class Found(NamedTuple):
    """A part of what a file holds. ``run``: the name of the run, once it is known."""

    points: list[Point]
    parameters: dict[str, str]
    images: list[Image]
    run: str = ""


class Reader(Protocol):
    """Reads a file that grows."""

    # What is wrong with the file, for a person, or empty.
    damage: str

    def read(self, is_last: bool = False) -> Iterator[Found]:
        """What was appended since the last time, in parts of bounded size; the last time also what
        counts only when the run is over. Raises OSError."""


def lines(rows: Sequence[Sequence[Any]]) -> Iterator[bytes]:
    """Points as in ALLRANKS_METRICS_FILE, in lines of bounded length."""
    for at in range(0, len(rows), _LINE):
        yield json.dumps({"points": rows[at : at + _LINE]}).encode() + b"\n"


def numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in a value by name; those in a mapping are `NAME.KEY`."""
    if isinstance(value, (int, float)):
        yield name, _number(value)
    elif isinstance(value, dict) and "_type" not in value:
        for key, below in value.items():
            yield from numbers(f"{name}.{key}", below)


def parameters(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of a configuration as text by name; those in a mapping are `NAME.KEY`."""
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
