"""Live jobs are in memory and read once; ended ones come and go."""

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.events import Event, Kind
from allranks.store.database import open_database
from allranks.store.jobs import latest
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records


def plan(name: str) -> Plan:
    return Plan(Gang(f"{name}.1", 1, ("agent",)), Task(name, "ex", "true", 1), Rules(1), "fake")


def ended(records: Records, name: str) -> JobRow:
    event = Event(Kind.FINISHED, 1.0, data={"status": "Failed", "exit_code": 1, "error": None})
    return records.append(name, [event])


def names(records: Records) -> list[str]:
    return [row.name for row in records.live()]


def test_live_jobs_of_an_earlier_server_are_read_and_others_follow(where, monkeypatch):
    monkeypatch.setattr(latest, "_ENDED", 2)
    engine = open_database(where)
    before = Records(engine)
    for name in ("a", "b", "c"):
        before.create({}, plan(name))
    ended(before, "b")
    records = Records(engine)
    records.create({}, plan("d"))
    assert names(records) == ["a", "c", "d"]
    assert records.append("c", []).name == "c"
    ended(records, "a")
    assert names(records) == ["c", "d"]
    for name in ("c", "d"):
        ended(records, name)
    assert names(records) == []
    kept = [each for each in "abcd" if records.latest(each) is not None]
    assert kept == ["c", "d"]  # the last two that ended
    assert records.get("a").record.status == "Failed"
    records.delete_job("d")
    assert records.latest("d") is None
    engine.dispose()


def test_a_job_that_gets_the_id_of_a_deleted_one_is_live(where):
    engine = open_database(where)
    records = Records(engine)
    old = records.create({}, plan("a"))
    ended(records, "a")
    records.delete_job("a")
    new = records.create({}, plan("b"))
    if engine.dialect.name == "sqlite":
        assert new.id == old.id
    assert names(records) == ["b"]
    engine.dispose()


def test_an_older_version_does_not_replace_a_newer_one(where):
    engine = open_database(where)
    records = Records(engine)
    old = records.create({}, plan("a"))
    new = ended(records, "a")
    assert names(records) == []
    assert records._latest.keep(old) == new
    assert names(records) == []
    engine.dispose()


def test_who_has_read_a_job_before_it_was_deleted_does_not_bring_it_back(where):
    engine = open_database(where)
    records = Records(engine)
    records.create({}, plan("a"))
    read = ended(records, "a")
    known = latest.Latest(list)
    known.keep(read)
    known.forget("a")
    assert known.keep(read) is read
    assert known.get("a") is None
    engine.dispose()
