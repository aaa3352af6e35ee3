"""Points of a series as compressed blocks, a third to a tenth of their size as rows.

Blocks hold the first points of a series, without gaps; the others are rows.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.engine import Connection

from allranks.store.tables import point_blocks as _blocks

# The most points in a block, and the blocks read in one query.
LENGTH, _BATCH = 4096, 64
_MASK = 2**64 - 1

# (step, at, value); a value that is not a number is None in rows, and NaN in blocks.
Row = tuple[int, float, float | None]


class Range(NamedTuple):
    """Numbers of points from ``first`` up to ``end``, and so many apart."""

    first: int
    end: int
    stride: int = 1


def pack(rows: Sequence[Row]) -> bytes:
    """Compress points. Exact to the bit."""
    steps, times, values = zip(*rows, strict=True)
    numbers = [math.nan if value is None else value for value in values]
    columns = [_deltas(array("q", steps)), _deltas(_bits(times)), _bits(numbers)]
    # Neighbours have the same high bytes: put these together.
    return zlib.compress(b"".join(c.tobytes()[i::8] for c in columns for i in range(8)))


class Columns(NamedTuple):
    """Points of a series, in order; a value that is not a number is NaN."""

    steps: array[int]
    times: array[float]
    values: array[float]


def unpack(data: bytes) -> list[Row]:
    return list(zip(*unpack_columns(data), strict=True))


def unpack_columns(data: bytes, timed: bool = True) -> Columns:
    raw = zlib.decompress(data)
    size = len(raw) // 3
    columns = []
    for start in range(0, len(raw), size):
        bytes_, length = bytearray(size), size // 8
        for i in range(8):
            begin = start + i * length
            bytes_[i::8] = raw[begin : begin + length]
        columns.append(bytes(bytes_))
    times = _sums(columns[1]) if timed else b""
    return Columns(array("q", _steps(columns[0])), array("d", times), array("d", columns[2]))


def _bits(numbers: Iterable[float]) -> array[int]:
    return array("Q", array("d", numbers).tobytes())


def _deltas(numbers: array[int]) -> array[int]:
    before = 0
    deltas = array("Q")
    for number in numbers:
        deltas.append((number - before) & _MASK)
        before = number
    return deltas


def _sums(deltas: bytes) -> bytes:
    return array("Q", [total & _MASK for total in accumulate(array("Q", deltas))]).tobytes()


# Ranks usually have the same steps.
_steps = lru_cache(maxsize=16)(_sums)


def columns(connection: Connection, ids: Sequence[int], timed: bool) -> dict[int, Columns]:
    """All points of series that are in blocks, by series id; see ``Points.columns``."""
    query = select(_blocks.c.series_id, _blocks.c.data).where(_blocks.c.series_id.in_(ids))
    unpacked: dict[int, Columns] = {}
    rows = connection.execute(query.order_by(_blocks.c.series_id, _blocks.c.first))
    for series_id, data in rows:
        block = unpack_columns(data, timed)
        if series_id in unpacked:
            unpacked[series_id].steps.extend(block.steps)
            unpacked[series_id].times.extend(block.times)
            unpacked[series_id].values.extend(block.values)
        else:
            unpacked[series_id] = block
    return unpacked


def add(connection: Connection, series_id: int, first: int, rows: Sequence[Row]) -> None:
    """Store at most LENGTH points, from number ``first``, as a block."""
    times = [at for _, at, _ in rows]
    finite = [value for *_, value in rows if value is not None and math.isfinite(value)]
    values = {"series_id": series_id, "first": first, "length": len(rows), "data": pack(rows)}
    values |= {"earliest": min(times), "latest": max(times)}
    values |= {"least": min(finite, default=None), "greatest": max(finite, default=None)}
    connection.execute(_blocks.insert().values(**values))


def read(connection: Connection, series_id: int, selection: Range) -> list[Row]:
    """The points of ``selection`` that are in blocks."""
    query = select(_blocks.c.first, _blocks.c.length).order_by(_blocks.c.first)
    query = query.where(_blocks.c.series_id == series_id)
    # By the key: blocks have a most length.
    near = (_blocks.c.first > selection.first - LENGTH, _blocks.c.first < selection.end)
    needed: dict[int, range] = {}
    for first, length in connection.execute(query.where(*near)):
        skipped = max(0, -((selection.first - first) // selection.stride))
        start = selection.first + skipped * selection.stride
        numbers = range(start, min(selection.end, first + length), selection.stride)
        if numbers:
            needed[first] = numbers
    firsts, selected = [*needed], list[Row]()
    for begin in range(0, len(firsts), _BATCH):
        some = firsts[begin : begin + _BATCH]
        query = select(_blocks.c.first, _blocks.c.data).where(_blocks.c.series_id == series_id)
        query = query.where(_blocks.c.first.in_(some)).order_by(_blocks.c.first)
        for first, data in connection.execute(query):
            numbers = needed[first]
            selected += unpack(data)[numbers.start - first : numbers.stop - first : numbers.step]
    return selected


def between(
    connection: Connection, series_id: int, begin: float, end: float
) -> tuple[int, int] | None:
    """The first and the last number of the points in blocks that are of a time span."""
    query = select(_blocks.c.first).where(_blocks.c.series_id == series_id)
    query = query.where(_blocks.c.latest >= begin, _blocks.c.earliest <= end)
    firsts = list(connection.execute(query.order_by(_blocks.c.first)).scalars())

    def numbers(several: Iterable[int]) -> Iterator[list[int]]:
        for first in several:
            rows = read(connection, series_id, Range(first, first + LENGTH))
            if inside := [first + n for n, (_, at, _) in enumerate(rows) if begin <= at <= end]:
                yield inside

    first = next(numbers(firsts), None)
    last = next(numbers(reversed(firsts)), None)
    return None if first is None or last is None else (first[0], last[-1])


def extremes(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[float, float]]:
    """The least and greatest finite value in blocks, by series id."""
    query = select(_blocks.c.series_id, func.min(_blocks.c.least), func.max(_blocks.c.greatest))
    query = query.where(_blocks.c.series_id.in_(ids)).group_by(_blocks.c.series_id)
    rows = connection.execute(query)
    return {one: (least, most) for one, least, most in rows if least is not None}


def remove(connection: Connection, ids: object) -> None:
    """Delete the blocks of series; ``ids``: a query of their ids."""
    connection.execute(delete(_blocks).where(_blocks.c.series_id.in_(ids)))  # type: ignore[arg-type]
