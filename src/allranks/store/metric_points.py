"""Metric points and resource series of jobs; each is stored once, however often it is sent."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import Engine, and_, bindparam, delete, func, literal_column, select, update
from sqlalchemy.engine import Connection

from allranks.core.metrics import metric_lines
from allranks.core.metrics.metric_lines import Key, Row
from allranks.core.metrics.thinning import PER_BUCKET, thin
from allranks.store import point_blocks
from allranks.store.database import insert_many
from allranks.store.point_blocks import Columns, Range
from allranks.store.tables import feeds as _feeds
from allranks.store.tables import points as _points
from allranks.store.tables import series as _series

METRIC, RESOURCE = "metric", "resource"
# An agent's files of points, and the kind of their series.
FEEDS = {"metrics": METRIC, "resources": RESOURCE, "logged": METRIC, "trackers": METRIC}

# Points read in one query, so that long reads do not block others.
_PAGE = 10_000
# Series that are read in one query.
_TOGETHER = 128
# The most points of a series that is read whole together with others.
_SHORT = point_blocks.LENGTH
# Points of which a thinned series keeps only the extremes: so many are in memory at once.
_LARGEST = 100_000
# Points of a series that are searched for repeated ones, and points handled in one query.
_RECENT, _BATCH = 2_000, 1_000


class Source(NamedTuple):
    """A file of points of an agent."""

    job_id: int
    attempt: int
    node: int
    name: str


class Point(NamedTuple):
    """``at`` is seconds since the epoch; ``value`` may be NaN or infinite."""

    step: int
    at: float
    value: float

    @property
    def number(self) -> float | str:
        """The value for JSON: a number, or "NaN", "Infinity", "-Infinity"."""
        if math.isfinite(self.value):
            return self.value
        return "NaN" if math.isnan(self.value) else "Infinity" if self.value > 0 else "-Infinity"


class Series(NamedTuple):
    """A series of points. ``id`` is its id in this database, ``length`` its number of points."""

    id: int
    name: str
    attempt: int
    node: int
    rank: int | None
    gpu: int | None
    length: int


class Shape(NamedTuple):
    """Some points of a series."""

    steps: Sequence[int]
    values: Sequence[float]


class Points:
    """The points in a database. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def add_from_agent(self, source: Source, offset: int, data: bytes) -> int:
        """Store complete lines of an agent's file, from ``offset``. Skips what is stored already.
        Returns the number of bytes stored, from which the sender continues."""
        return self.add_from_agents([(source, offset, data)])[0]

    def add_from_agents(self, pieces: Sequence[tuple[Source, int, bytes]]) -> list[int]:
        """``add_from_agent`` of several files, in one transaction."""
        read = [(source, at, list(_lines(source.name, at, data))) for source, at, data in pieces]
        with self._engine.begin() as connection:
            return [_add_lines(connection, *piece) for piece in read]

    def add_metrics(self, job_id: int, attempt: int, metrics: Sequence[tuple[str, Point]]) -> None:
        """Store metrics that a script has sent. Skips recently stored ones, because clients repeat
        requests that were not answered."""
        source = Source(job_id, attempt, 0, "metrics")
        valid = [
            (metric_lines.series_name(name), point)
            for name, point in metrics
            if metric_lines.is_step(point.step)
        ]
        with self._engine.begin() as connection:
            for start in range(0, len(valid), _BATCH):
                batch = valid[start : start + _BATCH]
                recent, new = _recent_points(connection, source, batch), []
                for name, point in batch:
                    if (key := (name, *_stored(point))) not in recent:
                        recent.add(key)
                        new.append(((name, None, None), point))
                if new:
                    _add(connection, source, new)

    def series(self, job_id: int, kind: str, attempt: int | None = None) -> list[Series]:
        """A job's series, ordered by name, attempt, node, rank and GPU."""
        query = select(*_COLUMNS).where(_of_job(job_id, kind, attempt))
        with self._reading.connect() as connection:
            return sorted((Series(*row) for row in connection.execute(query)), key=_order)

    def read(
        self, one: Series, since: int = 0, most: int | None = None, until: int | None = None
    ) -> Iterator[Point]:
        """The points of a series from number ``since`` up to ``until``; about ``most`` of them,
        evenly spaced and with the last one."""
        end = one.length if until is None else min(until, one.length)
        stride = 1 if most is None else max(1, math.ceil((end - since) / most))
        first = since + (end - 1 - since) % stride
        while first < end:
            after = first + _PAGE * stride
            page = Range(first, min(end, after), stride)
            yield from (_point(*row) for row in self._page(one, page))
            first = after

    def thinned(
        self, one: Series, most: int, since: int = 0, until: int | None = None
    ) -> list[Point]:
        """About ``most`` points of a series, from number ``since`` up to ``until``, that keep its
        extremes and one NaN or infinity of each kind nearby: see ``thin``."""
        end = one.length if until is None else min(until, one.length)
        if end - since <= most:
            return list(self.read(one, since, until=end))
        width = math.ceil((end - since) / max(1, most // PER_BUCKET))
        width = min(width, _LARGEST)
        page = width * max(1, _LARGEST // width)
        points: list[Point] = []
        for first in range(since, end, page):
            rows = self._page(one, Range(first, min(end, first + page)))
            values = [math.nan if value is None else value for *_, value in rows]
            points += (_point(*rows[place]) for place in thin(values, width))
        return points

    def _page(self, one: Series, page: Range) -> list[point_blocks.Row]:
        # Do not hold a connection while the caller processes the points.
        with self._reading.connect() as connection:
            rows = point_blocks.read(connection, one.id, page)
            rows += _rows(connection, one.id, page)
        return rows

    def columns(self, several: Sequence[Series], timed: bool = True) -> dict[int, Columns]:
        """All points of series, by series id; those of many ranks need few queries. ``timed``: not
        to unpack times saves a third."""
        columns: dict[int, Columns] = {}
        for start in range(0, len(several), _TOGETHER):
            ids = [one.id for one in several[start : start + _TOGETHER]]
            with self._reading.connect() as connection:
                columns |= point_blocks.columns(connection, ids, timed)
                for series_id in ids:
                    query = _COLUMNS_OF if timed else _UNTIMED_OF
                    rows = connection.execute(query, {"of": series_id}).cursor.fetchall()
                    if rows:
                        empty = Columns(array("q"), array("d"), array("d"))
                        so_far = columns.setdefault(series_id, empty)
                        steps, *times, values = zip(*rows, strict=True)
                        so_far.steps.extend(steps)
                        so_far.values.extend(_numbers(values))
                        if timed:
                            so_far.times.extend(times[0])
        return columns

    def shapes(self, several: Sequence[Series], most: int) -> Iterator[Shape]:
        """About ``most`` points of each series, evenly spaced and with the last one. Ten thousand
        short series take a second."""
        for start in range(0, len(several), _TOGETHER):
            chunk = several[start : start + _TOGETHER]
            short = self.columns([one for one in chunk if one.length <= _SHORT], timed=False)
            for one in chunk:
                if one.length > _SHORT:
                    rows = [*self.read(one, most=most)]
                    yield Shape([row.step for row in rows], [row.value for row in rows])
                    continue
                columns = short.get(one.id)
                if columns is None:  # its job has been deleted meanwhile
                    yield Shape([], [])
                    continue
                stride = max(1, math.ceil(one.length / most))
                part = slice((one.length - 1) % stride, one.length, stride)
                yield Shape(columns.steps[part], columns.values[part])

    def between(self, one: Series, begin: float, end: float) -> tuple[int, int]:
        """The numbers of the points of a time span, in seconds since the epoch: first, and after
        the last."""
        number = _points.c.number
        query = select(func.min(number), func.max(number)).where(
            _points.c.series_id == one.id, _points.c.at >= begin, _points.c.at <= end
        )
        with self._reading.connect() as connection:
            of_rows = connection.execute(query).one()
            spans = [of_rows, point_blocks.between(connection, one.id, begin, end)]
        ranges = [tuple(span) for span in spans if span is not None and span[0] is not None]
        if not ranges:
            return 0, 0
        return min(first for first, _ in ranges), max(last for _, last in ranges) + 1

    def newest(
        self, job_id: int, kind: str, attempt: int | None = None
    ) -> list[tuple[Series, Point]]:
        """A job's series in order, with the last point of each."""
        query = select(*_COLUMNS, _series.c.step, _series.c.at, _series.c.value)
        with self._reading.connect() as connection:
            rows = connection.execute(query.where(_of_job(job_id, kind, attempt))).all()
        pairs = [(Series(*row[:-3]), _point(*row[-3:])) for row in rows]
        return sorted(pairs, key=lambda pair: _order(pair[0]))

    def extremes(self, series: Iterable[Series]) -> dict[int, tuple[float, float]]:
        """The least and greatest finite value by series id; series without one are missing."""
        with self._reading.connect() as connection:
            return extremes(connection, [one.id for one in series])


_COLUMNS = [_series.c[name] for name in Series._fields]
# A metric has a series for each attempt and rank that told it. The one of the newest attempt and,
# in it, of the lowest rank leads: its last point is the metric's value. Literal, for the index.
LEADS = _series.c.leads == literal_column("1")

_value = _points.c.value
_EXTREMES = (
    select(_points.c.series_id, func.min(_value), func.max(_value))
    .where(_points.c.series_id.in_(bindparam("ids", expanding=True)))
    .where(_value > -math.inf, _value < math.inf)
    .group_by(_points.c.series_id)
)
_UNTIMED_OF = (
    select(_points.c.step, _points.c.value)
    .where(_points.c.series_id == bindparam("of"))
    .order_by(_points.c.number)
)
_COLUMNS_OF = _UNTIMED_OF.with_only_columns(_points.c.step, _points.c.at, _points.c.value)


def extremes(connection: Connection, series: Sequence[int]) -> dict[int, tuple[float, float]]:
    """See ``Points.extremes``."""
    bounds: dict[int, tuple[float, float]] = {}
    for start in range(0, len(series), _PAGE):  # SQLite takes 32,766 variables
        ids = series[start : start + _PAGE]
        bounds |= point_blocks.extremes(connection, ids)
        for one, least, most in connection.execute(_EXTREMES, {"ids": ids}):
            before = bounds.get(one, (least, most))
            bounds[one] = (min(least, before[0]), max(most, before[1]))
    return bounds


def _numbers(values: Sequence[float | None]) -> array[float]:
    try:
        return array("d", values)  # type: ignore[arg-type]
    except TypeError:  # a value that is no number
        return array("d", [math.nan if value is None else value for value in values])


def _rows(connection: Connection, series_id: int, selection: Range) -> list[point_blocks.Row]:
    """The points of ``selection`` that are in rows."""
    number = _points.c.number
    query = select(_points.c.step, _points.c.at, _points.c.value).order_by(number)
    query = query.where(_points.c.series_id == series_id)
    query = query.where(number >= selection.first, number < selection.end)
    if selection.stride > 1:
        query = query.where((number - selection.first) % selection.stride == 0)
    # The driver's own tuples: SQLAlchemy's rows take twice as long.
    rows = connection.execute(query).cursor.fetchall()
    return cast(list[point_blocks.Row], rows)


def _of_job(job_id: int, kind: str, attempt: int | None) -> Any:
    mine = and_(_series.c.job_id == job_id, _series.c.kind == kind)
    return mine if attempt is None else and_(mine, _series.c.attempt == attempt)


def number(value: float | None) -> float | str:
    """A stored value for JSON; see ``Point.number``."""
    return _point(0, 0.0, value).number


def _point(step: int, at: float, value: float | None) -> Point:
    # SQLite cannot store NaN; it is stored as NULL.
    return Point(step, at, math.nan if value is None else value)


def _stored(point: Point) -> tuple[int, float, float | None]:
    return point.step, point.at, None if math.isnan(point.value) else point.value


def delete_points(connection: Connection, job_id: int) -> None:
    """Delete all points of a job."""
    mine = select(_series.c.id).where(_series.c.job_id == job_id)
    connection.execute(delete(_points).where(_points.c.series_id.in_(mine)))
    point_blocks.remove(connection, mine)
    connection.execute(delete(_series).where(_series.c.job_id == job_id))
    connection.execute(delete(_feeds).where(_feeds.c.job_id == job_id))


# Built once: to build a statement takes longer than to execute it, and agents send points all the
# time.
_FEED = and_(*(_feeds.c[name] == bindparam(f"of_{name}") for name in Source._fields))
_TAKEN = select(_feeds.c.taken).where(_FEED)
_NEW_FEED = _feeds.insert()
_TAKE = update(_feeds).where(_FEED).values(taken=bindparam("end"))
_OF_NODE = ("job_id", "kind", "attempt", "node")
_EXISTING = select(
    *(_series.c[name] for name in ("name", "rank", "gpu", "id", "length", "step"))
).where(*(_series.c[name] == bindparam(name) for name in _OF_NODE))
_KEY = ("name", "rank", "gpu")
_NEW = _series.insert().returning(*(_series.c[name] for name in _KEY), _series.c.id)
_LEADERS = select(
    _series.c.id, _series.c.name, _series.c.attempt, _series.c.rank, _series.c.node
).where(
    _series.c.job_id == bindparam("of"),
    _series.c.name.in_(bindparam("names", expanding=True)),
    LEADS,
)
_LENGTHEN = update(_series).where(_series.c.id == bindparam("series"))


def _add_lines(
    connection: Connection,
    source: Source,
    offset: int,
    lines: Sequence[tuple[int, list[tuple[Key, Row]]]],
) -> int:
    feed = {f"of_{name}": value for name, value in source._asdict().items()}
    taken = connection.execute(_TAKEN, feed).scalar_one_or_none()
    stored = taken or 0
    new = [(end, rows) for end, rows in lines if end > stored]
    if offset > stored or not new:
        return stored
    _add(connection, source, [row for _, rows in new for row in rows])
    end = new[-1][0]
    if taken is None:
        connection.execute(_NEW_FEED, {**source._asdict(), "taken": end})
    else:
        connection.execute(_TAKE, {**feed, "end": end})
    return end


def _add(connection: Connection, source: Source, rows: Sequence[tuple[Key, Row]]) -> None:
    kind = FEEDS[source.name]
    mine = {**source._asdict(), "kind": kind}
    existing = {
        (name, rank, gpu): (number, length, step)
        for name, rank, gpu, number, length, step in connection.execute(
            _EXISTING, {name: mine[name] for name in _OF_NODE}
        )
    }
    by_key: dict[Key, list[Row]] = {}
    for key, row in rows:
        by_key.setdefault(key, []).append(row)
    valid = {key: _valid(points) for key, points in by_key.items()}
    if keys := [key for key in by_key if key not in existing and valid[key][0]]:
        created = _create_series(connection, source, keys, kind)
        existing |= {key: (number, 0, None) for key, number in created.items()}
    new: list[tuple[int | float | None, ...]] = []
    longer: list[dict[str, int | float | None]] = []
    for key, (points, limit) in valid.items():
        if key not in existing:
            continue  # nothing of it is left
        series_id, length, last_step = existing[key]
        if limit is not None and length:
            length, last_step = _cut(connection, series_id, limit)
        if not points:
            if not length:
                connection.execute(delete(_series).where(_series.c.id == series_id))
            continue
        for number, (step, at, value) in enumerate(points, length):
            if step is None:
                step = _next_step(connection, source, key, last_step)
            last_step = step
            new.append((series_id, number, step, at, value if value == value else None))
        last = dict(zip(("step", "at", "value"), new[-1][2:], strict=True))
        longer.append({"series": series_id, "length": length + len(points), **last})
    if longer:
        connection.execute(_LENGTHEN, longer)
        insert_many(connection, _points, new)


def _valid(points: Sequence[Row]) -> tuple[list[Row], int | None]:
    """New points without those that a later one makes void, and from which step on older ones
    are."""
    limit: int | None = None
    valid: list[Row] = []
    for row in reversed(points):
        step, _, value = row
        if value is None and step is not None:
            limit = step if limit is None else min(limit, step)
        elif limit is None or step is None or step < limit:
            valid.append(row)
    return valid[::-1], limit


def _cut(connection: Connection, series_id: int, limit: int) -> tuple[int, int | None]:
    """Delete the points of a series from step ``limit`` on. Returns how many are left, and the step
    of the last one."""
    one, number = _series.c.id == series_id, _points.c.number
    length, packed = connection.execute(select(_series.c.length, _series.c.packed).where(one)).one()
    for first in range(0, packed, _PAGE):
        rows = point_blocks.read(connection, series_id, Range(first, min(first + _PAGE, packed)))
        numbered = [(series_id, place, *row) for place, row in enumerate(rows, first)]
        insert_many(connection, _points, numbered)
    point_blocks.remove(connection, select(_series.c.id).where(one))
    mine = _points.c.series_id == series_id
    query = select(func.min(number)).where(mine, _points.c.step >= limit)
    void = connection.execute(query).scalar()
    if void is not None:
        # Usually steps rise, and nothing stays behind it.
        rows = _rows(connection, series_id, Range(void, min(length, void + _LARGEST)))
        stay = [row for row in rows if row[0] < limit]
        connection.execute(delete(_points).where(mine, number >= void))
        length = void + len(stay)
        numbered = [(series_id, place, *row) for place, row in enumerate(stay, void)]
        insert_many(connection, _points, numbered)
    last = _rows(connection, series_id, Range(length - 1, length))
    values = dict(zip(("step", "at", "value"), last[0], strict=True)) if last else {}
    connection.execute(update(_series).where(one).values(length=length, packed=0, **values))
    return length, last[0][0] if last else None


def _next_step(connection: Connection, source: Source, key: Key, last: int | None) -> int:
    """The step of a point without one. The first of an attempt goes on where the attempt before
    has ended."""
    if last is None:
        query = select(_series.c.step).where(
            _of_job(source.job_id, METRIC, None),
            _series.c.name == key[0],
            _series.c.rank == key[1],
            _series.c.attempt < source.attempt,
        )
        last = connection.execute(query.order_by(_series.c.attempt.desc()).limit(1)).scalar()
    return 0 if last is None else min(last + 1, 2**63 - 1)


def _recent_points(
    connection: Connection, source: Source, points: Sequence[tuple[str, Point]]
) -> set[tuple[str, int, float, float | None]]:
    """Recently stored points that may be among ``points``. Only recent ones, because all writers
    wait for this query."""
    series = and_(
        _of_job(source.job_id, METRIC, source.attempt),
        _series.c.node == source.node,
        _series.c.name.in_({name for name, _ in points}),
        _series.c.rank.is_(None),
    )
    recent = _points.c.number >= _series.c.length - _RECENT
    query = (
        select(_series.c.name, _points.c.step, _points.c.at, _points.c.value)
        .join(_series, _points.c.series_id == _series.c.id)
        .where(series, recent, _points.c.step.in_({point.step for _, point in points}))
    )
    existing = {(name, step, at, value) for name, step, at, value in connection.execute(query)}
    packed = select(_series.c.id, _series.c.name, _series.c.length, _series.c.packed)
    packed = packed.where(series, _series.c.packed > 0)
    packed = packed.where(_series.c.packed > _series.c.length - _RECENT)
    for series_id, name, length, end in connection.execute(packed).all():
        rows = point_blocks.read(connection, series_id, Range(max(0, length - _RECENT), end))
        existing |= {(name, *_stored(_point(*row))) for row in rows}
    return existing


def _create_series(
    connection: Connection, source: Source, keys: Sequence[Key], kind: str
) -> dict[Key, int]:
    """Create series; returns their ids."""
    leading = _take_lead(connection, source, keys) if kind == METRIC else ()
    of = {"job_id": source.job_id, "kind": kind, "attempt": source.attempt, "node": source.node}
    rows = [
        {**of, **dict(zip(_KEY, key, strict=True)), "length": 0, "leads": int(key in leading)}
        for key in keys
    ]
    return {(name, rank, gpu): number for name, rank, gpu, number in connection.execute(_NEW, rows)}


def _take_lead(connection: Connection, source: Source, keys: Sequence[Key]) -> set[Key]:
    """Let new series lead their metrics instead of those before. Returns these new ones."""
    leading = set[Key]()
    first: dict[str, Key] = {}
    for key in sorted(keys, key=lambda key: _rank_order(key[1])):
        first.setdefault(key[0], key)
    names, before = [*first], dict[str, Any]()
    for start in range(0, len(names), _BATCH):
        some = {"of": source.job_id, "names": names[start : start + _BATCH]}
        before |= {row.name: row for row in connection.execute(_LEADERS, some)}
    for name, key in first.items():
        if (row := before.get(name)) is not None:
            order = _lead_order(row.attempt, row.rank, row.node)
            if _lead_order(source.attempt, key[1], source.node) >= order:
                continue
            connection.execute(update(_series).where(_series.c.id == row.id).values(leads=0))
        leading.add(key)
    return leading


def _lead_order(attempt: int, rank: int | None, node: int) -> tuple[int, tuple[bool, int], int]:
    return -attempt, _rank_order(rank), node


def _rank_order(rank: int | None) -> tuple[bool, int]:
    return rank is None, rank or 0


def _lines(name: str, offset: int, data: bytes) -> Iterator[tuple[int, list[tuple[Key, Row]]]]:
    """The end offset of each line, and its points without damaged ones."""
    is_metric = FEEDS[name] == METRIC
    for line in data.split(b"\n")[:-1]:
        offset += len(line) + 1
        if is_metric:
            yield offset, metric_lines.read(line).points
        else:
            yield offset, metric_lines.read_resources(line)


def _order(one: Series) -> tuple[Any, ...]:
    def number(value: int | None) -> int:
        return -1 if value is None else value

    return one.name, one.attempt, one.node, number(one.rank), number(one.gpu)
