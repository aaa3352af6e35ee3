"""The controller's looks, with the real database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.core.endpoints import changes
from allranks.core.endpoints.events import Kind, sentence
from allranks.core.endpoints.record import Deployment, Replica, Revision
from allranks.errors import NotFound
from allranks.server.endpoints import controller as keeper_module
from allranks.server.endpoints.controller import Changed, Controller
from allranks.settings import Home
from allranks.statuses import JobStatus
from allranks.store.database import opened_database
from allranks.store.endpoints import Endpoints
from allranks.store.key_values import Settings

SPEC = {"name": "d", "endpoint_name": "e", "command": "x", "instance_count": 2}


class House:
    """An endpoint with a deployment of two replicas, which end two seconds after they started."""

    def __init__(self, endpoints: Endpoints, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.endpoints = 1000.0, endpoints
        self.started: list[float] = []
        self.refused: Exception | None = None
        self.error: dict[str, Any] = {"message": "exited with code 4"}
        monkeypatch.setattr(keeper_module.time, "time", lambda: self.now)
        endpoints.create("e", lambda none: changes.create(none, "e", {"name": "e"}, 0.0, "me"))
        new = Revision(SPEC, {"spec": {"command": "x"}}, "", 1)
        endpoints.change("e", lambda row: changes.deploy(row, "d", new, 0, 0.0, "me"))
        compute = SimpleNamespace(remote=True)
        services: Any = SimpleNamespace(
            records=SimpleNamespace(latest=self._latest),
            channels=None,
            home=Home(folder),
            endpoints=endpoints,
            clusters=SimpleNamespace(find=lambda name: None, kind=lambda _: compute),
        )
        self.controller = Controller(services)
        self.controller._replicas.start = self._start  # type: ignore[method-assign]

    @property
    def row(self) -> Deployment:
        return self.endpoints.deployment("e", "d")

    def look(self) -> float:
        return self.controller._advance(self.endpoints.get("e"), "d", {})[1]

    def _start(self, row: Deployment, replica: Replica) -> None:
        if self.refused is not None:
            raise self.refused
        self.started.append(replica.started_at)

    def _latest(self, name: str) -> object:
        (begun,) = (item.started_at for item in self.row.replicas if item.job == name)
        status = JobStatus.FAILED if self.now >= begun + 2 else JobStatus.RUNNING
        record = SimpleNamespace(status=status)
        return SimpleNamespace(record=record, error=self.error, started_at=begun)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    with opened_database(tmp_path / "db") as database:
        endpoints = Endpoints(database, Settings(database), None)  # type: ignore[arg-type]
        yield House(endpoints, tmp_path, monkeypatch)


def test_a_deployment_that_fails_is_tried_less_and_less_and_then_given_up(house: House):
    while house.now < 1000 + 26:
        house.look()
        house.now += 0.25
    assert len(house.started) == 6  # two, then one each
    assert [b - a for a, b in pairwise(house.started[1:])] == [3.0, 4.0, 6.0, 10.0]
    while house.now < 1000 + 7200:
        wait = house.look()
        house.now += 5
    assert (len(house.started), wait) == (13, 1.0)
    events = house.endpoints.events("e")
    assert events[-1].event.kind is Kind.FAILED
    assert sentence(events[-1].event).endswith("it is given up until it is updated")
    assert len(events) < 40, "a look that changes nothing writes nothing"


def test_the_job_that_failed_is_known_by_its_name(house: House):
    house.look()
    (job, _) = (item.job for item in house.row.replicas)
    house.now += 3
    house.error["evidence"] = {"line": "ValueError: no licence", "where": "score.py:4"}
    house.look()
    other = house.row.failed_job
    assert house.row.reason == f"{other}: failed at score.py:4: ValueError: no licence"
    assert job in {event.event.data.get("job") for event in house.endpoints.events("e")}
    del house.error["evidence"]
    house.now += 10
    house.look()
    house.now += 10
    house.look()
    assert house.row.reason == f"{house.row.failed_job}: exited with code 4"


def test_what_cannot_be_submitted_leaves_no_replica(house: House):
    house.refused = NotFound("the environment x is gone")
    house.look()
    row = house.row
    assert (row.replicas, row.failed_job, row.failures) == ((), None, 1)
    assert row.reason == "the environment x is gone"


def test_a_look_at_what_has_changed_does_nothing(house: House):
    before = house.endpoints.get("e")
    house.endpoints.change("e", lambda row: changes.change(row, {"tags": {}}, 1.0, "me"))
    with pytest.raises(Changed):
        house.controller._advance(before, "d", {})
    assert not house.started
    assert not house.row.replicas
