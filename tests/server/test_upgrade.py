"""What is looked at before a home's server becomes this version."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import namedtuple
from pathlib import Path

import pytest
import sqlalchemy as sa

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import Conflict, ServerError, UsageError
from allranks.events import Event, Kind
from allranks.server import upgrade
from allranks.settings import Home, make
from allranks.store.database import HEAD, opened_database
from allranks.store.jobs.records import Records


@pytest.fixture
def own(tmp_path: Path) -> Home:
    made = Home(tmp_path / "ho'me x")
    make(made)
    return made


def hello(home: Home, job: str, *agents: dict[str, object], launch: int = 1) -> None:
    """A live job whose agents have called, with what each says of itself."""
    with opened_database(home.database) as database:
        records = Records(database)
        plan = Plan(Gang(f"{job}.1", 1, ("x",)), Task(job, "e", "true"), Rules(1), "fake")
        rows = {row.name: row for row in records.live()}
        row = rows[job] if job in rows else records.create({}, plan)
        said = [
            Event(Kind.HELLO, 1.0, launch=launch, node=node, seq=1, data=data)
            for node, data in enumerate(agents)
        ]
        records.apply(row, said)


@pytest.mark.parametrize(
    ("server", "agent", "serves"),
    [
        ("0.2.0", "0.2.1", True),
        ("0.2.0", "0.1.0", True),
        ("0.3.0", "0.1.9", False),
        ("0.2.0", "0.5.0", True),  # after a step back
        ("1.0.0", "0.9.0", True),
        ("1.1.0", "0.9.0", False),
        ("2.0.0", "1.7.0", True),
        ("0.2.0", "no version", True),  # the first release
        ("0.3.0", "no version", False),
    ],
)
def test_agents_of_the_minor_version_before_are_served(server, agent, serves, monkeypatch):
    monkeypatch.setattr(upgrade, "__version__", server)
    assert upgrade.serves(agent) is serves


def test_an_agent_that_is_too_old_is_named_with_its_job(own, monkeypatch):
    hello(own, "first", {"pid": 1}, {"pid": 2, "version": "0.2.3"})
    hello(own, "new", {"pid": 1, "version": "0.2.3"})
    assert upgrade.check(own) == upgrade.Check(upgrade.__version__, HEAD, False, False)
    monkeypatch.setattr(upgrade, "__version__", "0.3.0")
    with pytest.raises(Conflict, match=r"agents of 1 job .* first \(0\.1\.0\)") as caught:
        upgrade.check(own)
    assert "job cancel" in caught.value.hint
    assert "new" not in caught.value.message
    # Its next launch has other agents.
    hello(own, "first", {"pid": 3, "version": "0.3.0"}, launch=2)
    assert not upgrade.check(own).migrates


def test_a_home_of_a_newer_version(own):
    with opened_database(own.database) as database, database.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'v99'"))
    with pytest.raises(ServerError, match="version v99") as caught:
        upgrade.check(own)
    assert caught.value.where == str(own.database)


@pytest.mark.medium
def test_a_migration_is_tried_on_a_copy(own):
    lines = (Path(__file__).parents[1] / "releases" / "0.1.0" / "database.sql").read_text()
    with contextlib.closing(sqlite3.connect(own.database)) as connection:
        connection.executescript(lines)
    before, files = own.database.read_bytes(), {*own.root.iterdir()}
    check = upgrade.check(own)
    assert (check.migrates, check.trial) == (True, True)
    assert own.database.read_bytes() == before
    assert {*own.root.iterdir()} - {own.root / f"allranks.db-{x}" for x in ("wal", "shm")} == files
    # One that fails is an error of the home's database.
    with contextlib.closing(sqlite3.connect(own.database)) as connection, connection:
        connection.execute("CREATE TABLE endpoints (name TEXT)")
    with pytest.raises(ServerError, match="endpoints already exists") as caught:
        upgrade.check(own)
    assert caught.value.where == str(own.database)


def test_a_disk_without_space_and_a_setting_that_is_none(own, monkeypatch):
    hello(own, "job", {"pid": 1})
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1 << 20))
    with pytest.raises(ServerError, match="MB are free"):
        upgrade.check(own)
    monkeypatch.setenv("ALLRANKS_LEASE", "soon")
    with pytest.raises(UsageError, match="soon"):
        upgrade.check(own)


def test_a_home_without_a_record(own):
    assert upgrade.check(own) == upgrade.Check(upgrade.__version__, None, False, False)
