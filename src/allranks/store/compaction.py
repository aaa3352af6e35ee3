"""Pack the points and events of ended jobs, which are rows, into compressed blocks.

Readers give the same answers before and after. Each transaction is short, because all writers wait
for one another.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Engine, delete, func, literal_column, select, update
from sqlalchemy.engine import Connection

from allranks import clock
from allranks.store import point_blocks
from allranks.store.jobs import event_blocks
from allranks.store.tables import events as _events
from allranks.store.tables import jobs as _jobs
from allranks.store.tables import points as _points
from allranks.store.tables import series as _series

log = logging.getLogger("allranks.compaction")

# Jobs in one query: databases have a limit. And what a transaction packs at most: blocks, or rows.
_BATCH, _BLOCKS, _ROWS = 500, 50, 4_000
# Pauses after a transaction, as a multiple of the time it took: others write, too.
_PAUSE = 3.0


class UnpackedEvents(NamedTuple):
    """Events of a job that are ``rows``."""

    job_id: int
    rows: int


class UnpackedPoints(NamedTuple):
    """Points of a series of a job that are ``rows``, from number ``first``: at most one block."""

    job_id: int
    rows: int
    series_id: int
    first: int


Unpacked = UnpackedEvents | UnpackedPoints


def compact(engine: Engine, min_age: float, stop: threading.Event, pause: float = _PAUSE) -> int:
    """Pack the points and events of jobs that ended at least ``min_age`` seconds ago, until
    ``stop`` is set. ``pause``: the time between two transactions, as a multiple of the first.
    Returns the number of rows that were packed."""
    packed = 0
    reading = engine.execution_options(read_only=True)
    before = clock.now() - min_age
    for batch in _batches(chain(_events_of(reading, before), _points_of(reading, before))):
        began = time.monotonic()
        with engine.begin() as connection:
            packed += _pack(connection, batch)
        if stop.wait(pause * (time.monotonic() - began)):
            break
    return packed


def _events_of(reading: Engine, before: float) -> Iterator[Unpacked]:
    job, rows = _events.c.job_id, func.count()
    query = select(job, rows - event_blocks.STAY).group_by(job)
    query = query.having(rows > event_blocks.STAY)
    with reading.connect() as connection:
        unpacked = [UnpackedEvents(*row) for row in connection.execute(query)]
    return _of_ended(reading, unpacked, before)


def _points_of(reading: Engine, before: float) -> Iterator[Unpacked]:
    columns = (_series.c.job_id, _series.c.id, _series.c.packed, _series.c.length)
    # As the index has it.
    query = select(*columns).where(literal_column("series.packed < series.length"))
    with reading.connect() as connection:
        unpacked = [
            UnpackedPoints(job_id, min(point_blocks.LENGTH, length - first), series_id, first)
            for job_id, series_id, packed, length in connection.execute(query)
            for first in range(packed, length, point_blocks.LENGTH)
        ]
    return _of_ended(reading, unpacked, before)


def _of_ended(reading: Engine, unpacked: Sequence[Unpacked], before: float) -> Iterator[Unpacked]:
    for start in range(0, len(unpacked), _BATCH):
        some = unpacked[start : start + _BATCH]
        with reading.connect() as connection:
            ended = _ended(connection, {item.job_id for item in some}, before)
        yield from (item for item in some if item.job_id in ended)


def _ended(connection: Connection, ids: Iterable[int], before: float) -> set[int]:
    query = select(_jobs.c.id).where(_jobs.c.id.in_(ids), _jobs.c.live == 0)
    return {*connection.execute(query.where(_jobs.c.ended_at < before)).scalars()}


def _batches(unpacked: Iterable[Unpacked]) -> Iterator[list[Unpacked]]:
    """What is packed in one transaction."""
    batch: list[Unpacked] = []
    for item in unpacked:
        batch.append(item)
        if len(batch) == _BLOCKS or sum(one.rows for one in batch) >= _ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _pack(connection: Connection, batch: list[Unpacked]) -> int:
    """Return the number of rows. Jobs may have been deleted, or opened again, since they were
    found."""
    ended = _ended(connection, {item.job_id for item in batch}, math.inf)
    packed = 0
    for item in batch:
        if item.job_id not in ended:
            continue
        if isinstance(item, UnpackedEvents):
            event_blocks.pack(connection, item.job_id)
            packed += item.rows
        else:
            packed += _pack_points(connection, item)
    return packed


def _pack_points(connection: Connection, points: UnpackedPoints) -> int:
    job_id, count, series_id, first = points
    # Another series may have this id now: SQLite gives those of deleted ones again.
    same = (_series.c.id == series_id, _series.c.job_id == job_id, _series.c.packed == first)
    length = connection.execute(select(_series.c.length).where(*same)).scalar()
    if length is None or length < first + count:
        return 0
    number = _points.c.number
    these = (_points.c.series_id == series_id, number >= first, number < first + count)
    query = select(_points.c.step, _points.c.at, _points.c.value).where(*these).order_by(number)
    rows = [(step, at, value) for step, at, value in connection.execute(query)]
    if len(rows) != count:
        _warn_once(series_id, job_id, f"{len(rows)} of {count} points from number {first}")
        return 0
    point_blocks.add(connection, series_id, first, rows)
    connection.execute(delete(_points).where(*these))
    one = update(_series).where(_series.c.id == series_id)
    connection.execute(one.values(packed=first + count))
    return count


@cache  # each pass finds it again
def _warn_once(series_id: int, job_id: int, there: str) -> None:
    log.warning("series %d (job id %d) is not compacted: it has %s", series_id, job_id, there)
