"""Metric points and resource series of jobs: taken in once each, in order, however often sent."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, and_, delete, func, select, update
from sqlalchemy.engine import Connection

from allranks.plan.lifecycle.validate_event import LATEST
from allranks.plan.text import repaired
from allranks.store.database import feeds as _feeds
from allranks.store.database import insert_many
from allranks.store.database import points as _points
from allranks.store.database import series as _series

METRIC, RESOURCE = "metric", "resource"
# What an agent's files of points are called, and what is in them.
FEEDS = {"metrics": METRIC, "resources": RESOURCE}

# Points that are read at once: whoever reads more gives way to others in between.
_PAGE = 10_000
# Among how many of the last points one that is told again is looked for, and how many at once.
_LATELY, _AT_ONCE = 2_000, 1_000
# The longest name that there is room for.
_NAME = 255


class Source(NamedTuple):
    """A file of points of an agent's."""

    job_id: int
    attempt: int
    node: int
    name: str


# A series of a source, (name, rank, GPU), the last two None where it is the node's; and a point of
# it, (step, at, value). Plain tuples: they come by the hundred thousand.
Key = tuple[str, int | None, int | None]
Row = tuple[int, float, float]


class Point(NamedTuple):
    """``at`` is seconds since the epoch; ``value`` may be NaN or infinite."""

    step: int
    at: float
    value: float

    @property
    def number(self) -> float | str:
        """The value as JSON has it, which has words for what is no finite number."""
        if math.isfinite(self.value):
            return self.value
        return "NaN" if math.isnan(self.value) else "Infinity" if self.value > 0 else "-Infinity"


class Series(NamedTuple):
    """``id`` names it in this record; ``length`` is how many points it has."""

    id: int
    name: str
    attempt: int
    node: int
    rank: int | None
    gpu: int | None
    length: int


class Points:
    """Those of one database. Safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def take(self, source: Source, offset: int, data: bytes) -> int:
        """Take in whole lines of the source's file from ``offset`` on; how many bytes of it are in
        the record then, which the sender goes on from. What is there already is left out."""
        told = list(_lines(source.name, offset, data))
        with self._engine.begin() as connection:
            here = and_(
                _feeds.c.job_id == source.job_id,
                _feeds.c.attempt == source.attempt,
                _feeds.c.node == source.node,
                _feeds.c.name == source.name,
            )
            taken = connection.execute(select(_feeds.c.taken).where(here)).scalar_one_or_none()
            if offset > (taken or 0):
                return taken or 0
            new = [(end, rows) for end, rows in told if end > (taken or 0)]
            if not new:
                return taken or 0
            _add(connection, source, [row for _, rows in new for row in rows])
            end = new[-1][0]
            if taken is None:
                connection.execute(_feeds.insert().values(**source._asdict(), taken=end))
            else:
                connection.execute(update(_feeds).where(here).values(taken=end))
        return end

    def note(self, job_id: int, attempt: int, told: Sequence[tuple[str, Point]]) -> None:
        """Take in metrics that a script itself told, whichever rank that was; those that were taken
        in a short while ago are left out: whoever got no answer tells them again."""
        source = Source(job_id, attempt, 0, "metrics")
        held = [(_fitting(name), point) for name, point in told if _is_held(point.step)]
        with self._engine.begin() as connection:
            for start in range(0, len(held), _AT_ONCE):
                several = held[start : start + _AT_ONCE]
                known, new = _lately(connection, source, several), []
                for name, point in several:
                    if (mark := (name, *_stored(point))) not in known:
                        known.add(mark)
                        new.append(((name, None, None), point))
                if new:
                    _add(connection, source, new)

    def series(self, job_id: int, kind: str, attempt: int | None = None) -> list[Series]:
        """A job's series: by name, attempt, node, rank and GPU."""
        query = select(*_COLUMNS).where(_of_job(job_id, kind, attempt))
        with self._reading.connect() as connection:
            return sorted((Series(*row) for row in connection.execute(query)), key=_order)

    def read(self, one: Series, since: int = 0, most: int | None = None) -> Iterator[Point]:
        """The points of a series from number ``since`` on; no more than about ``most``, evenly
        spread and with the last one."""
        left = one.length - since
        stride = 1 if most is None else max(1, math.ceil(left / most))
        query = (
            select(_points.c.step, _points.c.at, _points.c.value)
            .where(_points.c.series_id == one.id, _points.c.number < one.length)
            .order_by(_points.c.number)
        )
        if stride > 1:
            query = query.where((one.length - 1 - _points.c.number) % stride == 0)
        while since < one.length:
            page = query.where(_points.c.number >= since, _points.c.number < since + _PAGE * stride)
            # No connection is held while the reader is busy with what it got.
            with self._reading.connect() as connection:
                rows = connection.execute(page).all()
            yield from (_point(*row) for row in rows)
            since += _PAGE * stride

    def newest(
        self, job_id: int, kind: str, attempt: int | None = None
    ) -> list[tuple[Series, Point]]:
        """A job's series, in their order, with the last point of each."""
        mine = _of_job(job_id, kind, attempt)
        last = and_(_points.c.series_id == _series.c.id, _points.c.number == _series.c.length - 1)
        query = select(*_COLUMNS, _points.c.step, _points.c.at, _points.c.value)
        with self._reading.connect() as connection:
            rows = connection.execute(query.join(_points, last).where(mine)).all()
        found = [(Series(*row[:-3]), _point(*row[-3:])) for row in rows]
        return sorted(found, key=lambda each: _order(each[0]))

    def extremes(self, several: Iterable[Series]) -> dict[int, tuple[float, float]]:
        """The least and the greatest finite value of each that has one."""
        value = _points.c.value
        ids = [one.id for one in several]
        query = (
            select(_points.c.series_id, func.min(value), func.max(value))
            .where(_points.c.series_id.in_(ids), value > -math.inf, value < math.inf)
            .group_by(_points.c.series_id)
        )
        with self._reading.connect() as connection:
            return {row[0]: (row[1], row[2]) for row in connection.execute(query)}


_COLUMNS = [_series.c[name] for name in Series._fields]


def _of_job(job_id: int, kind: str, attempt: int | None) -> Any:
    mine = and_(_series.c.job_id == job_id, _series.c.kind == kind)
    return mine if attempt is None else and_(mine, _series.c.attempt == attempt)


def number(value: float | None) -> float | str:
    """A stored value as JSON has it."""
    return _point(0, 0.0, value).number


def _point(step: int, at: float, value: float | None) -> Point:
    # SQLite has no number that is none: NULL stands for it.
    return Point(step, at, math.nan if value is None else value)


def _stored(point: Point) -> tuple[int, float, float | None]:
    return point.step, point.at, None if math.isnan(point.value) else point.value


def forget(connection: Connection, job_id: int) -> None:
    """Take out all of a job's."""
    mine = select(_series.c.id).where(_series.c.job_id == job_id)
    connection.execute(delete(_points).where(_points.c.series_id.in_(mine)))
    connection.execute(delete(_series).where(_series.c.job_id == job_id))
    connection.execute(delete(_feeds).where(_feeds.c.job_id == job_id))


def _add(connection: Connection, source: Source, rows: Sequence[tuple[Key, Row]]) -> None:
    kind = FEEDS[source.name]
    mine = and_(
        _series.c.job_id == source.job_id,
        _series.c.attempt == source.attempt,
        _series.c.node == source.node,
        _series.c.kind == kind,
    )
    columns = (_series.c.name, _series.c.rank, _series.c.gpu, _series.c.id, _series.c.length)
    known = {
        (name, rank, gpu): (number, length)
        for name, rank, gpu, number, length in connection.execute(select(*columns).where(mine))
    }
    by_key: dict[Key, list[Row]] = {}
    for key, row in rows:
        by_key.setdefault(key, []).append(row)
    new: list[tuple[int | float | None, ...]] = []
    for key, several in by_key.items():
        series_id, length = known.get(key) or (_make(connection, source, key, kind), 0)
        new += (
            (series_id, number, step, at, value if value == value else None)
            for number, (step, at, value) in enumerate(several, length)
        )
        one = update(_series).where(_series.c.id == series_id)
        connection.execute(one.values(length=length + len(several)))
    insert_many(connection, _points, new)


def _lately(
    connection: Connection, source: Source, several: Sequence[tuple[str, Point]]
) -> set[tuple[str, int, float, float | None]]:
    """Those of the last points that may be among ``several``: who tells points of a script waits,
    and so does everyone else who writes."""
    mine = and_(_of_job(source.job_id, METRIC, source.attempt), _series.c.node == source.node)
    told = and_(mine, _series.c.name.in_({name for name, _ in several}), _series.c.rank.is_(None))
    query = (
        select(_series.c.name, _points.c.step, _points.c.at, _points.c.value)
        .join(_series, _points.c.series_id == _series.c.id)
        .where(told, _points.c.number >= _series.c.length - _LATELY)
        .where(_points.c.step.in_({point.step for _, point in several}))
    )
    return {(name, step, at, value) for name, step, at, value in connection.execute(query)}


def _make(connection: Connection, source: Source, key: Key, kind: str) -> int:
    values = {**dict(zip(("name", "rank", "gpu"), key, strict=True)), "kind": kind, "length": 0}
    values |= {"job_id": source.job_id, "attempt": source.attempt, "node": source.node}
    made = connection.execute(_series.insert().values(**values).returning(_series.c.id))
    return int(made.scalar_one())


def _lines(name: str, offset: int, data: bytes) -> Iterator[tuple[int, list[tuple[Key, Row]]]]:
    """The points of each line, and where in the file it ends. A damaged line has none."""
    read = _metrics if FEEDS[name] == METRIC else _resources
    for line in data.split(b"\n")[:-1]:
        offset += len(line) + 1
        try:
            yield offset, read(json.loads(line))
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            yield offset, []


def _metrics(told: Mapping[str, Any]) -> list[tuple[Key, Row]]:
    return [
        ((_fitting(name), _of(rank), None), (int(step), _moment(at), float(value)))
        for name, rank, step, at, value in told["points"]
        if _is_held(int(step))
    ]


def _fitting(told: Any) -> str:
    """That name; one that there is no room for is shortened, so that no other becomes the same."""
    name = str(repaired(str(told)))
    if len(name) <= _NAME:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _NAME - 9]}_{mark}"


def _moment(told: Any) -> float:
    """In seconds since 1970, of a calendar that can be shown."""
    at = float(told)
    if not 0 <= at <= LATEST:
        raise ValueError(told)
    return at


def _is_held(step: int) -> bool:
    """Whether the database has room for it."""
    return -(2**63) <= step < 2**63


def _of(number: Any) -> int | None:
    """Of which rank or GPU, if of any."""
    if number is not None and not -(2**31) <= int(number) < 2**31:
        raise OverflowError(number)
    return None if number is None else int(number)


def _resources(told: Mapping[str, Any]) -> list[tuple[Key, Row]]:
    at = _moment(told["at"])
    return [
        ((_fitting(name), _of(rank), _of(gpu)), (0, at, float(value)))
        for name, gpu, rank, value in told["points"]
    ]


def _order(one: Series) -> tuple[Any, ...]:
    def number(each: int | None) -> int:
        return -1 if each is None else each

    return one.name, one.attempt, one.node, number(one.rank), number(one.gpu)
