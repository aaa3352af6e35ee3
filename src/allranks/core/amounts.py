"""Numbers and amounts of memory as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def number(value: Any) -> float:
    """A positive one. Raises ValueError."""
    amount = float(value) if not isinstance(value, bool) else -1.0
    if not 0 < amount < float("inf"):
        raise ValueError(value)
    return amount


def memory(value: Any) -> int:
    """Bytes of ``4g``, ``512m``, ``1.5 GiB``: 1024 of each to the next. Raises ValueError."""
    text = str(value).strip().lower().removesuffix("b").removesuffix("i")
    unit = text[-1:] if text[-1:].isalpha() else ""
    # Nobody means four bytes: some mean megabytes and some gigabytes.
    if unit not in _UNITS or (not unit and text.isdigit() and int(text) < 1 << 20):
        raise ValueError(value)
    return int(number(text.removesuffix(unit)) * _UNITS[unit])


def counted(number: float, thing: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{number:.12g} {thing}{'' if number == 1 else 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order as text: ``0, 2–5, 9``."""
    spans = list[list[int]]()
    for value in numbers:
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ", ".join(f"{first}–{last}" if last > first else str(first) for first, last in spans)


def size_text(count: float) -> str:
    """Bytes as people say them, in powers of 1000 as disks are sold: ``3.4 MB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.95:
            return f"{count:.1f} {unit}" if unit != "bytes" else counted(round(count), "byte")
        count /= 1000
    return f"{count:.1f} TB"


def seconds_text(count: float) -> str:
    """Seconds as people say them: ``3.4 s``, ``2 min 05 s``, ``1 h 02 min``."""
    if count < 60:
        return f"{count:.1f} s"
    minutes, rest = divmod(round(count), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
