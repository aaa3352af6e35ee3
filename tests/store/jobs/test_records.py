"""The record: events folded in one transaction, leases, blobs, logs, and its migrations."""

import hashlib
import threading
import time

import pytest
from sqlalchemy import create_engine

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import Conflict, NotFound, ServerError, UsageError
from allranks.events import Event, Kind
from allranks.statuses import JobStatus
from allranks.store import migrations
from allranks.store.database import HEAD, open_database
from allranks.store.files.blobs import Blobs
from allranks.store.files.logs import Logs
from allranks.store.jobs.records import Records
from tests.schemas import schema


def plan(name: str = "job", nodes: int = 2) -> Plan:
    return Plan(
        Gang(f"{name}.1", nodes, ("agent",)), Task(name, "ex", "true", nodes), Rules(nodes), "fake"
    )


@pytest.fixture
def records(where):
    engine = open_database(where)
    yield Records(engine)
    engine.dispose()


def hello(node: int, seq: int = 1) -> Event:
    return Event(Kind.HELLO, time.time(), node=node, seq=seq)


def test_a_job_comes_back_as_it_went_in(records):
    made = records.create({"command": "true"}, plan())
    assert (made.plan, made.record.status) == (plan(), JobStatus.NOT_STARTED)
    assert records.get("job") == made
    assert [row.name for row in records.live()] == ["job"]
    with pytest.raises(Conflict, match="already exists"):
        records.create({}, plan())
    with pytest.raises(NotFound, match="nosuch"):
        records.get("nosuch")


def test_what_is_said_twice_is_recorded_once(records):
    records.create({}, plan())
    records.append("job", [hello(0), hello(1)])
    version = records.get("job").version
    assert records.append("job", [hello(0)]).version == version
    kinds = [told.event.kind for told in records.events("job")]
    assert kinds == [Kind.CREATED, Kind.HELLO, Kind.HELLO]
    after = records.events("job")[0].id
    assert len(records.events("job", after)) == 2


def test_a_decision_about_a_job_that_changed_is_not_applied(records):
    row = records.create({}, plan())
    again = records.append("job", [hello(0)])
    assert records.apply(row, [Event(Kind.SUBMITTED, 1.0)]) is None
    saved = records.apply(again, [Event(Kind.SUBMITTED, 1.0)])
    assert saved.record.status is JobStatus.PREPARING


@pytest.mark.medium
def test_many_writers_lose_nothing(records):
    records.create({}, plan(nodes=8))

    def speak(node: int) -> None:
        for seq in range(1, 21):
            records.append("job", [Event(Kind.NOTE, 1.0, node=node, seq=seq)])

    threads = [threading.Thread(target=speak, args=(node,)) for node in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [node.seq for node in records.get("job").record.nodes] == [20] * 8
    assert len(records.events("job")) == 1 + 8 * 20


@pytest.mark.medium
def test_migrations_make_what_a_fresh_database_has(tmp_path, where):
    fresh = open_database(where)
    if isinstance(where, str):
        name = f"{fresh.url.database}m"
        with fresh.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        migrated = create_engine(fresh.url.set(database=name))
    else:
        migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    migrations.upgrade(migrated)
    assert schema(migrated) == schema(fresh)
    with migrated.connect() as connection:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    assert found == HEAD
    for engine in (fresh, migrated):
        engine.dispose()


@pytest.mark.medium
def test_an_upgrade_of_a_current_database_changes_nothing(where):
    engine = open_database(where)
    made = Records(engine).create({"command": "true"}, plan())
    before = schema(engine)
    migrations.upgrade(engine)
    assert schema(engine) == before
    engine.dispose()
    again = open_database(where)
    assert Records(again).get("job") == made
    again.dispose()


@pytest.mark.parametrize("version", ["from the future", "0013"])
def test_a_database_of_an_unknown_version_is_refused(tmp_path, version):
    """Those of versions before the first release had numbers."""
    path = tmp_path / "other.db"
    other = create_engine(f"sqlite:///{path}")
    with other.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT PRIMARY KEY)")
        connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{version}')")
    other.dispose()
    with pytest.raises(ServerError) as caught:
        open_database(path)
    assert version in caught.value.message
    assert "the allranks that wrote it" in caught.value.hint


def test_blobs_are_what_their_names_say(tmp_path):
    blobs = Blobs(tmp_path)
    digest = hashlib.sha256(b"hello").hexdigest()
    assert not blobs.has(digest)
    with pytest.raises(UsageError, match="content does not match"), blobs.receive(digest) as take:
        take(b"hell")
    assert not blobs.has(digest)
    assert list(tmp_path.rglob("*")) == [tmp_path / digest[:2]]
    with blobs.receive(digest) as take:
        take(b"hel")
        take(b"lo")
    assert blobs.open(digest).read_bytes() == b"hello"
    for hostile in ("../../etc/passwd", "x", digest.upper()):
        with pytest.raises(UsageError):
            blobs.path(hostile)


def test_logs_grow_at_their_end_only(tmp_path):
    logs = Logs(tmp_path)
    assert logs.append(1, 0, "user_logs/std_log.txt", 0, b"one\n") == 4
    assert logs.append(1, 0, "user_logs/std_log.txt", 0, b"one\ntwo\n") == 8, (
        "sent twice, kept once"
    )
    assert logs.append(1, 0, "user_logs/std_log.txt", 0, b"one\n") == 8
    assert logs.append(1, 0, "user_logs/std_log.txt", 20, b"hole") == 8, "asks for what is missing"
    assert logs.read(1, "user_logs/std_log.txt", 4) == b"two\n"
    assert logs.read(2, "user_logs/std_log.txt", 0) == b""
