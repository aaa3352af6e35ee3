"""The thread that compacts ended jobs: it goes on after a failure, and ends."""

from allranks.server.loop.compaction_loop import CompactionLoop
from allranks.store.database import open_database
from allranks.store.jobs.records import Records
from allranks.store.metric_points import METRIC, Point, Points
from tests.store.jobs.test_records import plan
from tests.support import until


def test_it_packs_what_has_ended_and_stops(tmp_path):
    database = open_database(tmp_path / "a.db")
    points, job = Points(database), Records(database).create({}, plan("j"), ended=True)
    loop = CompactionLoop(database, pace=0.01, min_age=-1.0)
    with database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE series RENAME TO away")
    loop.start()
    with database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO series")
    points.add_metrics(job.id, 1, [("l", Point(1, 1.0, 0.5))])

    def packed() -> bool:
        with database.connect() as connection:
            return not connection.exec_driver_sql("SELECT count(*) FROM points").scalar()

    until(packed)
    loop.stop()
    (one,) = points.series(job.id, METRIC)
    assert [tuple(each) for each in points.read(one)] == [(1, 1.0, 0.5)]
    database.dispose()
