"""Endpoints as records: changes at once, what is kept of their events, and earlier homes."""

from __future__ import annotations

import io
import json
import lzma
import sqlite3
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from allranks.core.endpoints import changes
from allranks.core.endpoints.events import Event, Kind
from allranks.core.endpoints.fold import fold_all
from allranks.core.endpoints.record import Endpoint, Replica, Revision
from allranks.errors import NotFound
from allranks.server.endpoints.router_table import router_table
from allranks.store import endpoints as endpoints_module
from allranks.store import migrations
from allranks.store.database import open_database, opened_database
from allranks.store.endpoints import Endpoints
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets
from allranks.store.tables import endpoint_events, settings

RELEASE = Path(__file__).parents[1] / "releases" / "0.1.0"


def open_endpoints(database: sa.Engine, folder: Path) -> Endpoints:
    values = Settings(database)
    return Endpoints(database, values, Secrets(values, folder / "key", "k"))


@pytest.fixture
def database(where: Path | str) -> Iterator[sa.Engine]:
    with opened_database(where) as engine:
        yield engine


@pytest.fixture
def endpoints(database: sa.Engine, tmp_path: Path) -> Endpoints:
    made = open_endpoints(database, tmp_path)
    made.create("e", lambda before: changes.create(before, "e", {"name": "e"}, 1.0, "ann"))
    return made


def tag(number: int) -> Any:
    return lambda row: changes.change(
        row, {"tags": {**row.spec.get("tags", {}), str(number): "x"}}, 2.0, "ann"
    )


def test_changes_at_once_lose_none(endpoints: Endpoints, database: sa.Engine, tmp_path: Path):
    """Not even those of another holder, as after a server that seemed to be dead."""
    other = open_endpoints(database, tmp_path)
    other.get("e")
    with ThreadPoolExecutor(4) as several:
        holders = (endpoints, other)
        [*several.map(lambda n: holders[n % 2].change("e", tag(n)), range(24))]
    for holder in (open_endpoints(database, tmp_path), endpoints):
        row = holder.change("e", tag(99))
    assert set(row.spec["tags"]) == {*map(str, range(24)), "99"}
    assert row.version == 1 + 24 + 2
    events = [stored.event for stored in endpoints.events("e")]
    assert fold_all(None, events) == row


def test_what_was_decided_from_an_older_record_is_decided_again(endpoints: Endpoints):
    before = endpoints.get("e")
    endpoints.change("e", tag(1))
    assert endpoints.apply("e", before, tag(2)(before)) is None
    assert endpoints.get("e").spec["tags"] == {"1": "x"}
    assert endpoints.change("e", lambda row: []) == endpoints.get("e")
    assert len(endpoints.events("e")) == 2


def test_an_endpoint_leaves_with_its_last_replica(endpoints: Endpoints, database: sa.Engine):
    new = Revision({"name": "d", "endpoint_name": "e", "command": "x"}, {"spec": {}}, "", 1)
    endpoints.change("e", lambda row: changes.deploy(row, "d", new, 0, 2.0, "ann"))
    replica = {"job": "j", "revision": 1, "address": "unix:a"}
    endpoints.change("e", lambda row: [Event(Kind.STARTING, 3.0, "d", data=replica)])
    assert endpoints.deployment("e", "d").replicas == (Replica("j", 1, "unix:a", 3.0),)
    endpoints.change("e", lambda row: [Event(Kind.DELETED, 4.0, by="ann")])
    assert not endpoints.list()
    with pytest.raises(NotFound):
        endpoints.events("e")
    # Another of that name takes over what is left, but not its history.
    endpoints.create("e", lambda before: changes.create(before, "e", {"name": "e"}, 5.0, "bob"))
    assert [stored.event.by for stored in endpoints.events("e")] == ["bob"]
    assert [row.is_deleted for row in endpoints.deployments()] == [True]
    endpoints.change("e", lambda row: [Event(Kind.ENDED, 6.0, "d", data={"job": "j"})])
    assert endpoints.deployments() == []
    endpoints.change("e", lambda row: [Event(Kind.DELETED, 7.0, by="bob")])
    assert endpoints.all() == []
    with database.connect() as connection:
        assert connection.execute(sa.select(endpoint_events)).all() == []


def test_the_newest_events_are_kept(
    endpoints: Endpoints, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(endpoints_module, "KEPT_EVENTS", 5)
    for number in range(105):
        endpoints.change("e", lambda row, n=number: [Event(Kind.KEYS, n, data={"keys": [str(n)]})])
    events = endpoints.events("e")
    assert 5 <= len(events) <= 12
    assert events[-1].event.data == {"keys": ["104"]}
    assert endpoints.get("e").version == 106


def released_settings() -> dict[str, Any]:
    """The single values of a home that 0.1.0 made: two deployments with 90 and 10 percent of the
    traffic, one of them after a rollback, the other one while an update of it fails."""
    archive = lzma.decompress((RELEASE / "deployments.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.extractfile("allranks.db")
        assert member is not None
        data = member.read()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        rows = connection.execute("SELECT key, value FROM settings").fetchall()
    return {key: json.loads(str(value)) for key, value in rows}


def table_of(rows: list[Endpoint]) -> str:
    """What the router is told, as it goes over the wire."""
    return json.dumps(router_table(rows), indent=1)


@pytest.fixture
def earlier(where: Path | str) -> Iterator[sa.Engine]:
    """A database of the version before endpoints were records."""
    engine = open_database(where)
    made = engine.url
    engine.dispose()
    if isinstance(where, Path):
        where.unlink()
    fresh = sa.create_engine(made)
    with fresh.begin() as connection:
        if isinstance(where, str):
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        config = Config()
        config.set_main_option("script_location", str(Path(migrations.__file__).parent))
        config.attributes["connection"] = connection
        command.upgrade(config, "v3")
    yield fresh
    fresh.dispose()


def opened_after(earlier: sa.Engine, values: dict[str, Any], folder: Path) -> Endpoints:
    with earlier.begin() as connection:
        rows = [{"key": key, "value": value} for key, value in values.items()]
        connection.execute(settings.insert(), rows)
    migrations.upgrade(earlier)
    return open_endpoints(earlier, folder)


def test_deployments_of_0_1_0_become_events(earlier: sa.Engine, tmp_path: Path):
    values = released_settings()
    endpoints = opened_after(earlier, values, tmp_path)
    assert table_of(endpoints.all()) == (RELEASE / "router-table.json").read_text()
    row = endpoints.get("birds")
    assert [stored.event.kind for stored in endpoints.events("birds")] == [
        Kind.CREATED,
        Kind.ADOPTED,
        Kind.ADOPTED,
    ]
    assert fold_all(None, [stored.event for stored in endpoints.events("birds")]) == row
    assert row.traffic == {"blue": 90, "green": 10}
    blue, green = row.answering
    assert blue.was_ready
    assert not green.was_ready
    assert blue.previous is not None
    assert blue.previous.spec["environment_variables"] == {"V": "2"}, "it was rolled back"
    assert green.failures >= 3
    assert green.failed_job is not None
    assert Settings(earlier).get("deployments") is None
    # The update that fails can be taken back: to the replica that still answers.
    row = endpoints.change("birds", lambda row: changes.update(row, "green", None, 0, 1.0, "ann"))
    assert row.deployments["green"].revision == 1
    assert row.deployments["green"].spec["environment_variables"] == {"V": "g"}


def test_what_was_being_deleted_or_got_traffic_goes_on(earlier: sa.Engine, tmp_path: Path):
    values = released_settings()
    deployments = values["deployments"]
    blue, green = deployments["birds/blue"], deployments["birds/green"]
    blue["takes_traffic"] = True
    green["is_deleted"] = True
    gone = {**green, "endpoint": "gone", "replicas": [["j", 1, "unix:a", 0.0, True, 1.0]]}
    ended = {**green, "endpoint": "ended", "replicas": []}
    deployments |= {"gone/green": gone, "ended/green": ended}
    endpoints = opened_after(earlier, values, tmp_path)
    assert [row.name for row in endpoints.list()] == ["birds"]
    assert [row.name for row in endpoints.all()] == ["birds", "gone"]
    assert endpoints.deployment("birds", "blue").takes_traffic == 100
    with pytest.raises(NotFound):
        endpoints.deployment("birds", "green")
    (left,) = endpoints.find("gone").deployments.values()  # type: ignore[union-attr]
    assert left.replicas == (Replica("j", 1, "unix:a", 0.0, True, 1.0),)
    endpoints.change("birds", lambda row: [])
    after = endpoints.apply(
        "gone", endpoints.find("gone"), [Event(Kind.ENDED, 1.0, "green", data={"job": "j"})]
    )
    assert after is not None
    assert after.is_gone
    assert [row.name for row in endpoints.all()] == ["birds"]
