"""Endpoints while others change them: what happens just before a lock is taken counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.api.routes import Role
from allranks.core.endpoints import changes
from allranks.core.endpoints.events import Event, Kind
from allranks.core.endpoints.record import Deployment, Endpoint, Replica, Revision
from allranks.errors import Conflict, Forbidden, NotFound
from allranks.server.api.routes import batch, deployments, endpoints
from allranks.server.api.routes.assets import models
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.auth.roles import Person
from allranks.server.loop.subscriptions import Subscriptions
from allranks.settings import Home
from allranks.spec.batch import STEP
from allranks.store.assets import Assets
from allranks.store.batch import BatchEndpoints
from allranks.store.database import opened_database
from allranks.store.endpoints import Endpoints
from allranks.store.files.blobs import Blobs
from allranks.store.files.trees import Trees
from allranks.store.jobs.records import Records
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets

ANN, BOB = Person("ann", Role.MEMBER), Person("bob", Role.MEMBER)
DEPLOYMENT = {
    "deployment": {
        "model": "azureml:m:1",
        "code_configuration": {"code": "s", "scoring_script": "s.py"},
    },
    "component": {
        "type": "pipeline",
        "jobs": {STEP: {"command": "true", "environment": "current", "inputs": {}}},
    },
}


class Late:
    """A lock; ``meanwhile`` is called once before it is taken."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.meanwhile: Callable[[], object] = lambda: None

    def __enter__(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class LateEndpoints:
    """The endpoints; ``meanwhile`` is called once before the next change is decided."""

    def __init__(self, inner: Endpoints) -> None:
        self._inner = inner
        self.meanwhile: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def change(self, name: str, rule: Callable[[Endpoint], list[Event]]) -> Endpoint:
        def late(row: Endpoint) -> list[Event]:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            events = rule(row)
            meanwhile()
            return events

        return self._inner.change(name, late)


def _tree(trees: Trees, file: Path) -> str:
    """The digest of a model of one file."""
    file.write_text(file.name)
    with trees.copy({file.name: file}) as made:
        trees.keep(made)
    return made.digest


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Any]:
    """Those of a server that batch endpoints need, with Ann's endpoint and a model."""
    with opened_database(tmp_path / "db") as database:
        settings = Settings(database)
        versions = ModelVersions(Assets(database, "model"), Trees(tmp_path / "models"))
        digests = [_tree(versions.trees, tmp_path / name) for name in "de"]
        versions.assets.create("m", "1", {"digest": digests[0]})
        made = SimpleNamespace(
            home=Home(tmp_path),
            digests=digests,
            batch=BatchEndpoints(settings),
            admission_lock=Late(),
            components=SimpleNamespace(find=None),
            blobs=Blobs(tmp_path / "blobs"),
            models=SimpleNamespace(versions=versions),
            records=Records(database),
            endpoints=Endpoints(database, settings, Secrets(settings, tmp_path / "key", "k")),
        )
        made.batch.lock = Late()  # type: ignore[assignment]
        batch.put("e", {}, made, ANN)
        yield made


def test_an_endpoint_that_became_anothers_is_left_alone(services: Any) -> None:
    def taken() -> None:
        services.batch.put(services.batch.get("e")._replace(created_by="bob"))

    services.batch.lock.meanwhile = taken
    with pytest.raises(Forbidden):
        batch.put_deployment("e", "d", DEPLOYMENT, services, ANN)
    assert not services.batch.get("e").deployments
    batch.put_deployment("e", "d", DEPLOYMENT, services, BOB)
    services.batch.put(services.batch.get("e")._replace(created_by="ann"))
    services.batch.lock.meanwhile = taken
    with pytest.raises(Forbidden):
        batch.delete("e", services, ANN)
    assert services.batch.get("e").deployments


def deploy(services: Any, spec: dict[str, Any], *replicas: Replica) -> Deployment:
    """Ann's endpoint with a deployment, of which these replicas are ready."""
    endpoints_of = services.endpoints
    new = Revision(spec, {"spec": spec}, "", 1)
    endpoints_of.create("o", lambda none: changes.create(none, "o", {"name": "o"}, 0.0, "ann"))
    endpoints_of.change("o", lambda row: changes.deploy(row, "d", new, 0, 0.0, "ann"))
    for item in replicas:
        add(services, item)
    row: Deployment = endpoints_of.deployment("o", "d")
    return row


def add(services: Any, item: Replica) -> None:
    data = {"job": item.job, "revision": item.revision, "address": "unix:a", "model": item.model}
    events = [Event(Kind.STARTING, 0.0, "d", data=data)]
    if item.was_ready:
        events.append(Event(Kind.READY, 0.0, "d", data={**data, "seconds": 1.0}))
    services.endpoints.change("o", lambda row: events)


def update(services: Any, spec: dict[str, Any]) -> None:
    new = Revision(spec, {"spec": spec}, "", 1)
    services.endpoints.change("o", lambda row: changes.update(row, "d", new, 0, 0.0, "ann"))


def test_an_online_endpoint_that_became_anothers_is_left_alone(services: Any) -> None:
    """It was deleted, and another person's has its name."""
    services.endpoints = LateEndpoints(services.endpoints)
    spec = {"name": "d", "endpoint_name": "o", "command": "x"}

    def taken() -> None:
        services.endpoints.change("o", lambda row: [Event(Kind.DELETED, 0.0, by="ann")])
        services.endpoints.create(
            "o", lambda none: changes.create(none, "o", {"name": "o"}, 0.0, "bob")
        )
        new = Revision(spec, {"spec": spec}, "", 1)
        services.endpoints.change("o", lambda row: changes.deploy(row, "d", new, 0, 0.0, "bob"))

    for change in (
        lambda: deployments.delete("o", "d", services, ANN),
        lambda: deployments.update("o", "d", {"instance_count": 1}, services, ANN),
        lambda: endpoints.renew_key("o", {}, services, ANN),
        lambda: endpoints.update("o", {"tags": {}}, services, ANN),
        lambda: endpoints.delete("o", services, ANN),
    ):
        deploy(services, spec)
        services.endpoints.meanwhile = taken
        with pytest.raises(Forbidden):
            change()
        assert services.endpoints.deployment("o", "d").created_by == "bob"
        assert services.endpoints.keys.get("o") == {}
        services.endpoints.change("o", lambda row: [Event(Kind.DELETED, 0.0, by="bob")])


def test_failed_updates_are_taken_back_and_the_replicas_of_before_stay(services: Any) -> None:
    spec = {"name": "d", "endpoint_name": "o", "command": "works"}
    old = Replica("old", 1, "unix:a", 0.0, True)
    deploy(services, spec, old)
    for command in ("fails", "fails, too"):
        update(services, {**spec, "command": command})
    failed = {"failures": 3, "wait": 4.0, "reason": "no", "ended": True, "was_ready": False}
    event = Event(Kind.FAILED, 0.0, "d", data={"job": "gone", **failed})
    row = services.endpoints.change("o", lambda row: [event]).deployments["d"]
    assert (row.revision, row.failures) == (3, 3)
    services.endpoints.counts = {"o/d": {"replicas": {"old": {"ready": True, "drains": False}}}}
    services.subscriptions = Subscriptions()
    made = deployments.update("o", "d", {"instance_count": 1}, services, ANN)
    assert (made["state"], made["instances"]) == ("Ready", 1)
    assert made["notes"] == ["the update of o/d that failed is taken back"]
    row = services.endpoints.deployment("o", "d")
    assert row.spec == {**spec, "instance_count": 1}
    assert (row.revision, row.replicas) == (1, (old,))
    # The next one has a number of its own, and what works is kept.
    add(services, Replica("failed", 3, "unix:b", 0.0))
    update(services, {**spec, "command": "fails"})
    row = services.endpoints.deployment("o", "d")
    assert row.previous is not None
    assert (row.revision, row.previous.spec["command"]) == (4, "works")
    # Of one that works, going back is a new revision.
    for job in ("old", "failed"):
        services.endpoints.change(
            "o", lambda row, job=job: [Event(Kind.ENDED, 0.0, "d", data={"job": job})]
        )
    add(services, Replica("new", 4, "unix:c", 0.0, True))
    made = deployments.update("o", "d", {"rollback": True}, services, ANN)
    assert (made["revision"], made["spec"]["command"]) == (5, "works")


def test_the_model_that_answers_after_a_failed_update_is_shown_and_stays(services: Any) -> None:
    versions = services.models.versions.assets
    versions.create("m", "2", {"digest": services.digests[1]})
    spec = {"name": "d", "endpoint_name": "o", "model": "azureml:m:1"}
    deploy(services, spec, Replica("old", 1, "unix:a", 0.0, True, model="azureml:m:1"))
    update(services, {**spec, "model": "azureml:m:2"})
    assert deployments.show("o", "d", services, ANN)["model"] == "azureml:m:2"
    services.endpoints.counts = {"o/d": {"replicas": {"old": {"ready": True, "drains": False}}}}
    assert deployments.show("o", "d", services, ANN)["model"] == "azureml:m:1"
    for version in ("m:1", "m:2"):
        with pytest.raises(Conflict, match=f"the deployment o/d uses {version}"):
            models.delete(version, services)
    draining = Event(Kind.DRAINING, 1.0, "d", data={"job": "old", "why": "it is replaced"})
    services.endpoints.change("o", lambda row: [draining])
    models.delete("m:1", services)


def test_a_model_is_there_or_deleted(services: Any) -> None:
    services.admission_lock.meanwhile = lambda: models.delete("m:1", services)
    with pytest.raises(NotFound):
        batch.put_deployment("e", "d", DEPLOYMENT, services, ANN)
    services.models.versions.assets.create("m", "2", {"digest": services.digests[0]})
    spec = {**DEPLOYMENT["deployment"], "model": "azureml:m:2"}
    newer = {**DEPLOYMENT, "deployment": spec}
    services.admission_lock.meanwhile = lambda: batch.put_deployment("e", "d", newer, services, ANN)
    with pytest.raises(Conflict, match="uses"):
        models.delete("m:2", services)


def test_a_deployment_that_is_made_again_while_the_deleted_one_stops(services: Any) -> None:
    spec = {"name": "d", "endpoint_name": "o", "command": "x"}
    deploy(services, spec, Replica("a", 2, "unix:a", 0.0), Replica("b", 1, "unix:b", 0.0))
    new = Revision(spec, {"spec": spec}, "", 1)

    def made(row: Endpoint) -> list[Event]:
        return changes.deploy(row, "d", new, 0, 2.0, "ann")

    with pytest.raises(Conflict, match="already exists"):
        services.endpoints.change("o", made)
    services.endpoints.change("o", lambda row: [Event(Kind.REMOVED, 1.0, "d", "ann")])
    before = services.endpoints.get("o")
    row = services.endpoints.change("o", made).deployments["d"]
    assert row.revision == 3, "none of the replicas counts as one of it"
    assert [item.job for item in row.replicas if item.drains_since] == ["a", "b"]
    # A look that began before changes nothing.
    ended = Event(Kind.ENDED, 3.0, "d", data={"job": "a"})
    assert services.endpoints.apply("o", before, [ended]) is None
    assert services.endpoints.deployment("o", "d") == row
