"""Ended jobs in compact form: every reader gives the same answers before and after."""

import json
import math
import sqlite3
import threading
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, func, select

from allranks.core.lifecycle.validate_event import LATEST
from allranks.events import Event, Kind
from allranks.store import compaction, database_copy, point_blocks, tables
from allranks.store.database import open_database
from allranks.store.jobs import event_rows
from allranks.store.jobs.records import Records
from allranks.store.metric_points import METRIC, RESOURCE, Point, Points, Source
from tests.store.jobs.test_records import plan

NUMBER = st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, 1e-320, 0.1])
TIME = st.floats(0, LATEST) | st.floats(1.7e9, 1.7e9 + 9)
ROWS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), TIME, NUMBER), min_size=1, max_size=40)


@pytest.fixture
def database(where):
    engine = open_database(where)
    yield engine
    engine.dispose()


def ended(database, name="j"):
    records = Records(database)
    row = records.create({}, plan(name), ended=True)
    return records, row


def compact(database, min_age=-1.0):
    return compaction.compact(database, min_age, threading.Event())


def counted(database, table):
    with database.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def exact(points):
    """As text, of which NaN equals NaN and -0.0 does not equal 0.0."""
    return [(p.step, repr(p.at), repr(p.value)) for p in points]


def answers(points, job, since, most, span):
    found = points.series(job, METRIC)
    newest = [(each, *exact([point])) for each, point in points.newest(job, METRIC)]
    told = [found, points.extremes(found), newest]
    for one in found:
        told += [exact(points.read(one)), exact(points.read(one, since, most))]
        first, end = points.between(one, *span)
        told += [(first, end), exact(points.read(one, first, most, end))]
    return told


@pytest.mark.medium
@given(
    rows=ROWS,
    more=ROWS,
    since=st.integers(0, 30),
    most=st.integers(1, 9),
    span=st.tuples(TIME, TIME),
)
@settings(max_examples=12, suppress_health_check=[*HealthCheck])
def test_points_come_back_to_the_bit(tmp_path_factory, rows, more, since, most, span):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_blocks, "LENGTH", 7)
        patch.setattr(point_blocks, "_BATCH", 2)
        database = open_database(tmp_path_factory.mktemp("p") / "a.db")
        points, (_, job) = Points(database), ended(database)
        offset, source = 0, Source(job.id, 1, 0, "metrics")
        for several in (rows, more):
            listed = [["l", 0, *row] for row in several] + [["m", 1, *several[0]]]
            data = json.dumps({"points": listed}).encode() + b"\n"
            offset = points.add_from_agent(source, offset, data)
            before = answers(points, job.id, since, most, sorted(span))
            assert compact(database) > len(several)
            assert counted(database, tables.points) == 0
            assert answers(points, job.id, since, most, sorted(span)) == before
            assert compact(database) == 0
        # SQLite stores -0.0 as 0.0.
        whole = [(step, repr(at), repr(value + 0.0)) for step, at, value in rows + more]
        assert exact(points.read(points.series(job.id, METRIC)[0])) == whole
        database.dispose()


def test_points_on_both_databases(database):
    points, (records, job) = Points(database), ended(database)
    several = [(n, 1e9 + n, math.nan if n == 3 else n / 7) for n in range(9_000)]
    data = json.dumps({"points": [["l", 0, *each] for each in several]}).encode() + b"\n"
    points.add_from_agent(Source(job.id, 1, 0, "metrics"), 0, data)
    load = json.dumps({"at": 5.0, "points": [["cpu", None, None, 50.0]]}).encode() + b"\n"
    points.add_from_agent(Source(job.id, 1, 0, "resources"), 0, load)
    span = (1e9 + 4_000, 1e9 + 8_500.5)
    before = answers(points, job.id, 100, 50, span)
    compact(database)
    assert counted(database, tables.points) == 0
    assert answers(points, job.id, 100, 50, span) == before
    (cpu,) = points.series(job.id, RESOURCE)
    assert [tuple(p) for p in points.read(cpu)] == [(0, 5.0, 50.0)]
    records.delete_job("j")
    assert counted(database, tables.point_blocks) == 0
    assert counted(database, tables.event_blocks) == 0


def test_notes_are_read_without_other_events(database, monkeypatch):
    records, job = ended(database)
    note = Event(Kind.NOTE, 1.0, launch=1, attempt=1, node=0, data={"about": "x"})
    others = [note._replace(attempt=2), note._replace(data={"about": "y"})]
    hello = Event(Kind.HELLO, 1.0, launch=1, attempt=1, node=0, data={})
    with database.begin() as connection:
        event_rows.insert_events(connection, job.id, [*others, note, *[hello] * 20])
    row = job._replace(record=job.record._replace(launch=1, attempt=1))
    decoded = []
    decode = event_rows._event
    monkeypatch.setattr(event_rows, "_event", lambda row: decoded.append(row) or decode(row))
    for _ in range(2):
        assert records.notes(row, "x") == [note]
        assert records.notes(row, "z") == []
        assert len(decoded) < 6
        compact(database)
        decoded.clear()


def test_a_block_is_small():
    """Rows take 30 bytes a point, and 75 in PostgreSQL."""
    rows = [(10 * n, 1.7e9 + 0.53 * n, round(2 / (1 + n / 500), 4)) for n in range(4096)]
    data = point_blocks.pack(rows)
    assert point_blocks.unpack(data) == rows
    assert len(data) < 10 * len(rows)


def test_a_metric_sent_again_is_there_once(database):
    """Also if what was stored is packed."""
    points, (_, job) = Points(database), ended(database)
    sent = [("l", Point(step, 1.0, value)) for step, value in ((1, 0.5), (2, math.nan))]
    points.add_metrics(job.id, 1, sent)
    compact(database)
    points.add_metrics(job.id, 1, [*sent, ("l", Point(3, 1.0, 7.0))])
    (one,) = points.series(job.id, METRIC)
    assert [p.step for p in points.read(one)] == [1, 2, 3]


def test_events_keep_their_order_and_ids(database):
    records, _ = ended(database)
    other = records.create({}, plan("other"))
    said = {"text": "é\ud800", "n": [1, None, 0.1]} if database.name == "sqlite" else {"n": 0.1}
    records.append("j", [Event(Kind.CANCEL_ASKED, 2.5, data=said) for _ in range(3)])
    for _ in range(2):
        before = records.events("j")
        some = before[2].id
        assert compact(database) > 0
        assert records.events("j") == before
        assert records.events("j", some) == [each for each in before if each.id > some]
        assert records.events("j", before[-1].id) == []
        records.append("j", [Event(Kind.CANCEL_ASKED, 3.0), Event(Kind.CANCEL_ASKED, 4.0)])
        assert [each.event.at for each in records.events("j", before[-1].id)] == [3.0, 4.0]
    assert [each.event.kind for each in records.events("other")] == [Kind.CREATED]
    assert other.record.status == records.get("other").record.status


def test_what_is_live_or_has_just_ended_stays(database):
    records, job = ended(database)
    live = records.create({}, plan("live"))
    points = Points(database)
    for each in (job, live):
        points.add_metrics(each.id, 1, [("l", Point(1, 1.0, 1.0)), ("l", Point(2, 1.0, 1.0))])
    assert compact(database, min_age=60.0) == 0
    assert compact(database) == 2 + len(records.events("j")) - 1
    assert counted(database, tables.points) == 2


def test_it_stops_between_two_transactions(database):
    for name in ("a", "b"):
        _, job = ended(database, name)
        Points(database).add_metrics(job.id, 1, [("l", Point(1, 1.0, 1.0))])
    stop = threading.Event()
    stop.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "_ROWS", 1)
        assert compaction.compact(database, -1.0, stop) == 1, "an event of the first"
        patch.undo()
    assert compact(database) == 3


def test_a_series_that_lacks_points_stops_no_other(database, caplog):
    points, (_, first), (_, second) = Points(database), ended(database, "a"), ended(database, "b")
    for job in (first, second):
        points.add_metrics(job.id, 1, [("l", Point(step, 1.0, 1.0)) for step in (1, 2)])
    (lacking,), (whole,) = points.series(first.id, METRIC), points.series(second.id, METRIC)
    lost = (tables.points.c.series_id == lacking.id, tables.points.c.number == 0)
    with database.begin() as connection:
        connection.execute(tables.points.delete().where(*lost))
    compaction._warn_once.cache_clear()
    assert compact(database) == 2 + 2, "an event of each job, and the points of the second"
    assert compact(database) == 0
    assert [p.step for p in points.read(whole)] == [1, 2]
    assert [p.step for p in points.read(lacking)] == [2]
    (warning,) = caplog.messages
    assert f"series {lacking.id} (job id {first.id})" in warning


def test_a_new_job_with_the_ids_of_a_deleted_one_is_packed_from_its_start(database):
    """SQLite gives ids again."""
    records, job = ended(database)
    points, sent = Points(database), [("l", Point(step, 1.0, step / 7)) for step in range(5)]
    points.add_metrics(job.id, 1, sent)

    class Replaced(threading.Event):
        def wait(self, timeout=None):
            if counted(database, tables.point_blocks) == 1:
                records.delete_job("j")
                points.add_metrics(ended(database, "new")[1].id, 1, sent)
            return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_blocks, "LENGTH", 2)
        patch.setattr(compaction, "_BLOCKS", 1)
        compaction.compact(database, -1.0, Replaced())
        assert counted(database, tables.point_blocks) == 0
        (one,) = points.series(records.get("new").id, METRIC)
        for _ in range(2):
            assert [(p.step, p.value) for p in points.read(one)] == [(n, n / 7) for n in range(5)]
            compact(database)


def test_a_backup_has_blocks_too(database, where, tmp_path):
    points, (records, job) = Points(database), ended(database)
    points.add_metrics(job.id, 1, [("l", Point(1, 1.0, 1.0))])
    before = records.events("j")
    compact(database)
    database_copy.take(where, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copied, copied:
        assert copied.execute("SELECT count(*) FROM points").fetchone() == (0,)
    copy = open_database(tmp_path / "copy.db")
    assert Records(copy).events("j") == before
    assert [tuple(p) for p in Points(copy).read(points.series(job.id, METRIC)[0])] == [
        (1, 1.0, 1.0)
    ]
    copy.dispose()


def test_few_rows_with_large_data_are_in_memory_while_a_database_is_copied(tmp_path):
    """A full block of points takes 39 KB."""
    source, goal = open_database(tmp_path / "a.db"), open_database(tmp_path / "b.db")
    block = {"length": 1, "earliest": 0.0, "latest": 0.0, "data": b"x"}
    with source.begin() as connection:
        connection.execute(
            tables.point_blocks.insert(),
            [{**block, "series_id": 1, "first": n} for n in range(250)],
        )
    rows = []

    @event.listens_for(goal, "before_cursor_execute")
    def count(_connection, _cursor, statement, parameters, _context, executemany):
        if statement.startswith("INSERT INTO point_blocks"):
            rows.append(len(parameters) if executemany else 1)

    database_copy._copy_rows(source, goal)
    assert rows == [100, 100, 50]
    source.dispose()
    goal.dispose()
