"""Store what ended jobs have told in a compact form: their points and events as compressed blocks.

Readers give the same answers before and after. Each transaction is short, because all writers wait
for one another.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
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

# Jobs in one query: databases have a limit. And what a transaction packs at most: blocks, or rows.
_BATCH, _BLOCKS, _ROWS = 500, 50, 4_000
# Pauses after a transaction, as a multiple of the time it took: others write, too.
_PAUSE = 3.0


class _Loose(NamedTuple):
    """Points (of a series, from number ``first``) or events of a job that are ``rows``."""

    job_id: int
    rows: int
    series_id: int | None = None
    first: int = 0


def compact(engine: Engine, quiet: float, over: threading.Event, pause: float = _PAUSE) -> int:
    """Pack what is loose of the jobs that ended ``quiet`` seconds ago, until ``over`` is set.
    ``pause``: the time between transactions, in their durations. Returns the number of rows that
    were packed."""
    packed = 0
    reading, before = engine.execution_options(read_only=True), clock.now() - quiet
    for portion in _portions(chain(_events_of(reading, before), _points_of(reading, before))):
        began = time.monotonic()
        with engine.begin() as connection:
            packed += _pack(connection, portion)
        if over.wait(pause * (time.monotonic() - began)):
            break
    return packed


def _events_of(reading: Engine, before: float) -> Iterator[_Loose]:
    job, rows = _events.c.job_id, func.count()
    query = select(job, rows - event_blocks.STAY).group_by(job)
    query = query.having(rows > event_blocks.STAY)
    with reading.connect() as connection:
        found = [_Loose(*row) for row in connection.execute(query)]
    return _of_ended(reading, found, before)


def _points_of(reading: Engine, before: float) -> Iterator[_Loose]:
    columns = (_series.c.job_id, _series.c.id, _series.c.packed, _series.c.length)
    # As the index has it.
    query = select(*columns).where(literal_column("series.packed < series.length"))
    with reading.connect() as connection:
        found = [
            _Loose(job_id, min(point_blocks.LENGTH, length - first), series_id, first)
            for job_id, series_id, packed, length in connection.execute(query)
            for first in range(packed, length, point_blocks.LENGTH)
        ]
    return _of_ended(reading, found, before)


def _of_ended(reading: Engine, found: list[_Loose], before: float) -> Iterator[_Loose]:
    for start in range(0, len(found), _BATCH):
        some = found[start : start + _BATCH]
        with reading.connect() as connection:
            ended = _ended(connection, {each.job_id for each in some}, before)
        yield from (each for each in some if each.job_id in ended)


def _ended(connection: Connection, ids: Iterable[int], before: float) -> set[int]:
    query = select(_jobs.c.id).where(_jobs.c.id.in_(ids), _jobs.c.live == 0)
    return {*connection.execute(query.where(_jobs.c.ended_at < before)).scalars()}


def _portions(loose: Iterable[_Loose]) -> Iterator[list[_Loose]]:
    """What is packed in one transaction."""
    portion: list[_Loose] = []
    for each in loose:
        portion.append(each)
        if len(portion) == _BLOCKS or sum(one.rows for one in portion) >= _ROWS:
            yield portion
            portion = []
    if portion:
        yield portion


def _pack(connection: Connection, portion: list[_Loose]) -> int:
    """Jobs may have been deleted, or opened again, since they were found."""
    still = _ended(connection, {each.job_id for each in portion}, math.inf)
    mine = [each for each in portion if each.job_id in still]
    for each in mine:
        if each.series_id is None:
            event_blocks.pack(connection, each.job_id)
        else:
            _pack_points(connection, each.series_id, each.first, each.rows)
    return sum(each.rows for each in mine)


def _pack_points(connection: Connection, series_id: int, first: int, count: int) -> None:
    number = _points.c.number
    these = (_points.c.series_id == series_id, number >= first, number < first + count)
    query = select(_points.c.step, _points.c.at, _points.c.value).where(*these).order_by(number)
    rows = [(step, at, value) for step, at, value in connection.execute(query)]
    assert len(rows) == count, (series_id, first)
    point_blocks.add(connection, series_id, first, rows)
    connection.execute(delete(_points).where(*these))
    one = update(_series).where(_series.c.id == series_id)
    connection.execute(one.values(packed=first + count))
