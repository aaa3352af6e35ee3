"""The lines of files of points, which ranks and agents write and the server records.

A line of a rank is JSON: {"points": [[NAME, RANK, STEP, SECONDS SINCE THE EPOCH, VALUE]]}, with
null for the step after the last one, or for the value to delete the series' points before it from
that step on, or
{"tags": {KEY: VALUE}} or {"parameters": {NAME: VALUE}}, or several of them. Ranks write them, so
any line may be damaged.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any, NamedTuple

from allranks.core.lifecycle.validate_event import LATEST
from allranks.core.text import repaired

# The longest name of a series that the database stores.
_MAX_NAME = 255
_DAMAGED = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)

# A series of a file, (name, rank, GPU), the last two None for the node; and a point, (step, at,
# value), or without a value what deletes those before it. Plain tuples, because there are hundreds
# of thousands.
Key = tuple[str, int | None, int | None]
Row = tuple[int | None, float, float | None]


class MetricLine(NamedTuple):
    """What is recorded of a line. ``is_whole``: nothing of it is left out."""

    points: list[tuple[Key, Row]]
    tags: dict[str, str]
    parameters: dict[str, str]
    is_whole: bool


def read(line: bytes) -> MetricLine:
    """A line of a rank. Damaged points and tags are left out."""
    try:
        data = json.loads(line)
        points = data.get("points")
        tags = data.get("tags")
        parameters = data.get("parameters")
    except _DAMAGED:
        return MetricLine([], {}, {}, False)
    good = [point for item in _listed(points) if (point := read_point(item)) is not None]
    named, valued = _texts(tags), _texts(parameters)
    is_whole = (
        (points is not None or tags is not None or parameters is not None)
        and (points is None or (isinstance(points, list) and len(good) == len(points)))
        and (tags is None or (isinstance(tags, dict) and len(named) == len(tags)))
        and (
            parameters is None or (isinstance(parameters, dict) and len(valued) == len(parameters))
        )
    )
    return MetricLine(good, named, valued, is_whole)


def read_resources(line: bytes) -> list[tuple[Key, Row]]:
    """The points in a line of an agent's resource use; none if it is damaged."""
    try:
        data = json.loads(line)
        at = timestamp(data["at"])
        return [
            ((series_name(name), _index(rank), _index(gpu)), (0, at, float(value)))
            for name, gpu, rank, value in data["points"]
        ]
    except _DAMAGED:
        return []


def series_name(value: Any) -> str:
    """The name, shortened with a hash if it is too long."""
    name = str(value)
    if len(name) <= _MAX_NAME:
        return _repaired(name)
    name = str(repaired(name))
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}_{digest}"


def is_step(number: int) -> bool:
    """Whether the database stores it."""
    return -(2**63) <= number < 2**63


def _texts(pairs: Any) -> dict[str, str]:
    several = pairs.items() if isinstance(pairs, dict) else ()
    return {repaired(str(key)): repaired(str(value)) for key, value in several if key}


def _listed(points: Any) -> list[Any]:
    return points if isinstance(points, list) else []


def read_point(data: Any) -> tuple[Key, Row] | None:
    """What is recorded of a point of a line, or None."""
    try:
        name, rank, step, at, value = data
        if step is not None and not is_step(step := int(step)):
            return None
        number = None if value is None and step is not None else float(value)
        return (series_name(name), _index(rank), None), (step, timestamp(at), number)
    except _DAMAGED:
        return None


@lru_cache(maxsize=1024)
def _repaired(name: str) -> str:
    """Most points have one of few names."""
    return str(repaired(name))


def timestamp(value: Any) -> float:
    """Unix seconds. Raises ValueError for a time that cannot be shown."""
    at = float(value)
    if not 0 <= at <= LATEST:
        raise ValueError(value)
    return at


def _index(number: Any) -> int | None:
    """A rank or GPU index, or None. Raises OverflowError."""
    if number is not None and not -(2**31) <= int(number) < 2**31:
        raise OverflowError(number)
    return None if number is None else int(number)
