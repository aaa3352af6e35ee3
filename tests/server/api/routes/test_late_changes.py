"""Endpoints while others change them: what happens just before a lock is taken counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.api.routes import Role
from allranks.errors import Conflict, Forbidden, NotFound
from allranks.server.api.routes import batch, endpoints
from allranks.server.api.routes.assets import models
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.auth.roles import Person
from allranks.server.loop.subscriptions import Subscriptions
from allranks.spec.batch import STEP
from allranks.store.assets import Assets
from allranks.store.batch import BatchEndpoints
from allranks.store.database import opened_database
from allranks.store.endpoints import DeploymentRow, EndpointRow, Endpoints, ReplicaRow
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


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Any]:
    """Those of a server that batch endpoints need, with Ann's endpoint and a model."""
    with opened_database(tmp_path / "db") as database:
        settings = Settings(database)
        versions = ModelVersions(Assets(database, "model"), Trees(tmp_path / "models"))
        versions.assets.create("m", "1", {"digest": "d"})
        made = SimpleNamespace(
            batch=BatchEndpoints(settings),
            admission_lock=Late(),
            components=SimpleNamespace(find=None),
            blobs=Blobs(tmp_path / "blobs"),
            models=SimpleNamespace(versions=versions),
            records=Records(database),
            endpoints=Endpoints(settings, Secrets(settings, tmp_path / "key", "k")),
        )
        made.batch.lock = Late()  # type: ignore[assignment]
        made.endpoints.lock = Late()  # type: ignore[assignment]
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


def test_an_online_endpoint_that_became_anothers_is_left_alone(services: Any) -> None:
    row = DeploymentRow("o", "d", {}, {}, 1, 0.0, "ann", previous={})
    services.endpoints.put(EndpointRow("o", {"name": "o"}, [], 0.0, "ann"))
    services.endpoints.create_deployment(row)

    def taken() -> None:
        services.endpoints.put(services.endpoints.get("o")._replace(created_by="bob"))
        services.endpoints.change(row, created_by="bob")

    for change in (
        lambda: endpoints.update_deployment("o", "d", {"rollback": True}, services, ANN),
        lambda: endpoints.renew_key("o", {}, services, ANN),
    ):
        services.endpoints.change(row, created_by="ann")
        services.endpoints.put(services.endpoints.get("o")._replace(created_by="ann"))
        services.endpoints.lock.meanwhile = taken
        with pytest.raises(Forbidden):
            change()
    assert services.endpoints.deployments() == [row._replace(created_by="bob")]
    assert services.endpoints.keys.get("o") == {}


def test_failed_updates_are_taken_back_and_the_replicas_of_before_stay(services: Any) -> None:
    spec = {"name": "d", "endpoint_name": "o", "command": "works"}
    old = ReplicaRow("old", 1, "unix:a", 0.0, True)
    row = DeploymentRow("o", "d", spec, {"spec": spec}, 1, 0.0, "ann", replicas=(old,))
    for command in ("fails", "fails, too"):
        bad = row._replace(spec={**spec, "command": command})
        row = row._replace(**endpoints._changes(row, bad, services))
    row = row._replace(failures=3)
    assert (row.revision, row.failures) == (3, 3)
    services.endpoints.put(EndpointRow("o", {"name": "o"}, [], 0.0, "ann"))
    services.endpoints.create_deployment(row)
    services.endpoints.counts = {"o/d": {"replicas": {"old": {"ready": True, "drains": False}}}}
    services.subscriptions = Subscriptions()
    made = endpoints.update_deployment("o", "d", {"instance_count": 1}, services, ANN)
    assert (made["state"], made["instances"]) == ("Ready", 1)
    assert made["notes"] == ["the update of o/d that failed is taken back"]
    (row,) = services.endpoints.deployments()
    assert row.spec == {**spec, "instance_count": 1}
    assert (row.revision, row.replicas) == (1, (old,))
    # The next one has a number of its own, and what works is kept.
    failed = ReplicaRow("failed", 3, "unix:b", 0.0)
    row = row._replace(replicas=(old, failed))
    row = row._replace(**endpoints._changes(row, bad, services))
    assert (row.revision, row.previous["spec"]["command"]) == (4, "works")
    # Of one that works, going back is a new revision.
    row = row._replace(replicas=(ReplicaRow("new", 4, "unix:c", 0.0, True),))
    row = row._replace(**endpoints._changes(row, None, services))
    assert (row.revision, row.spec["command"]) == (5, "works")


def test_the_model_that_answers_after_a_failed_update_is_shown_and_stays(services: Any) -> None:
    versions = services.models.versions.assets
    versions.create("m", "2", {"digest": "e"})
    old = ReplicaRow("old", 1, "unix:a", 0.0, True, model="azureml:m:1")
    spec = {"name": "d", "endpoint_name": "o", "model": "azureml:m:2"}
    row = DeploymentRow("o", "d", spec, {"spec": spec}, 2, 0.0, "ann", replicas=(old,))
    services.endpoints.put(EndpointRow("o", {"name": "o"}, [], 0.0, "ann"))
    services.endpoints.create_deployment(row)
    assert endpoints.show_deployment("o", "d", services)["model"] == "azureml:m:2"
    services.endpoints.counts = {"o/d": {"replicas": {"old": {"ready": True, "drains": False}}}}
    assert endpoints.show_deployment("o", "d", services)["model"] == "azureml:m:1"
    for version in ("m:1", "m:2"):
        with pytest.raises(Conflict, match=f"the deployment o/d uses {version}"):
            models.delete(version, services)
    services.endpoints.change(row, replicas=(old._replace(drains_since=1.0),))
    models.delete("m:1", services)


def test_a_model_is_there_or_deleted(services: Any) -> None:
    services.admission_lock.meanwhile = lambda: models.delete("m:1", services)
    with pytest.raises(NotFound):
        batch.put_deployment("e", "d", DEPLOYMENT, services, ANN)
    services.models.versions.assets.create("m", "2", {"digest": "d"})
    spec = {**DEPLOYMENT["deployment"], "model": "azureml:m:2"}
    newer = {**DEPLOYMENT, "deployment": spec}
    services.admission_lock.meanwhile = lambda: batch.put_deployment("e", "d", newer, services, ANN)
    with pytest.raises(Conflict, match="uses"):
        models.delete("m:2", services)


def test_a_deployment_that_is_made_again_while_the_deleted_one_stops(services: Any) -> None:
    services.endpoints.put(EndpointRow("o", {"name": "o"}, [], 0.0, "ann"), new=True)
    replicas = (ReplicaRow("a", 2, "unix:a", 0.0), ReplicaRow("b", 1, "unix:b", 0.0))
    row = DeploymentRow("o", "d", {}, {}, 1, 0.0, "ann", replicas=replicas)
    services.endpoints.create_deployment(row)
    with pytest.raises(Conflict, match="already exists"):
        services.endpoints.create_deployment(row)
    deleted = services.endpoints.change(row, is_deleted=True)
    made = services.endpoints.create_deployment(row._replace(replicas=()))
    assert made.revision == 3, "none of the replicas counts as one of it"
    assert [item.job for item in made.replicas if item.drains_since] == ["a", "b"]
    services.endpoints.forget(deleted)  # a look that began before
    assert services.endpoints.deployment("o", "d") == made
