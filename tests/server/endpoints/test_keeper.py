"""What the router is told of endpoints, and what they are told to be."""

from __future__ import annotations

import contextlib
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from allranks.core.replicas import Replica, state, tries
from allranks.errors import Conflict, NotFound, SpecError
from allranks.serve.table import Backend, Route, Site
from allranks.server.api.routes.endpoints import _reason, _replicas, _require_model
from allranks.server.endpoints import keeper as keeper_module
from allranks.server.endpoints.keeper import Keeper, good_sites, site
from allranks.server.endpoints.scaling import Scaler, instances_of, ready_within
from allranks.settings import Home
from allranks.spec.endpoint import parse_deployment
from allranks.statuses import JobStatus
from allranks.store.database import open_database
from allranks.store.endpoints import DeploymentRow, EndpointRow, Endpoints, ReplicaRow
from allranks.store.key_values import Settings


def test_numbers_that_are_text_in_a_file():
    endpoint = EndpointRow("e", {"name": "e", "traffic": {"blue": "100"}}, ["a"], 0.0, "me")
    spec = {
        "name": "blue",
        "endpoint_name": "e",
        "command": "x",
        "instance_count": "3.0",
        "request_settings": {"request_timeout_ms": "3000"},
        "readiness_probe": {"period": "2", "failure_threshold": "5"},
    }
    far = ReplicaRow("j", 1, "far:name:1234", 0.0)
    row = DeploymentRow("e", "blue", spec, {}, 1, 0.0, "me", replicas=(far,))
    route = Route("blue", (Backend("j", "unix:name"),), timeout=3.0)
    assert site(endpoint, [row]) == Site("e", ("a",), {"blue": 100}, {}, (route,))
    far = far._replace(model="azureml:m:1")
    (made,) = site(endpoint, [row._replace(replicas=(far,))]).routes
    assert made.backends[0].model == "azureml:m:1", "of the replica: an update may have another"
    assert ready_within(row) == 20.0
    assert instances_of(row) == 3


def test_an_endpoint_that_fails_does_not_stop_the_others():
    settings = {"request_timeout_ms": 10**399}
    spec = {"name": "d", "endpoint_name": "bad", "command": "x", "request_settings": settings}
    row = DeploymentRow("bad", "d", spec, {}, 1, 0.0, "me")
    endpoints = [EndpointRow(name, {"name": name}, ["a"], 0.0, "me") for name in ("bad", "good")]
    assert good_sites(endpoints, [row]) == [Site("good", ("a",), {}, {}, ())]
    with pytest.raises(SpecError, match="request_timeout_ms"):
        parse_deployment(spec)


def test_an_update_is_ready_when_the_router_asks_none_of_before():
    old = ReplicaRow("old", 1, "unix:a", 0.0, True, drains_since=1.0)
    row = DeploymentRow(
        "e", "blue", {}, {}, 2, 0.0, "me", replicas=(old, ReplicaRow("new", 2, "unix:b", 0.0, True))
    )
    reports = {"old": {"ready": True, "drains": False}, "new": {"ready": True, "drains": False}}
    assert state(_replicas(row, reports), 2, 1, 0) == "Updating"
    reports["old"]["drains"] = True
    assert state(_replicas(row, reports), 2, 1, 0) == "Ready"


def test_replicas_follow_the_load():
    settings = {"min_instances": "0", "max_instances": 3, "scale_down_delay": 10}
    spec = {"name": "d", "endpoint_name": "e", "command": "x", "scale_settings": settings}
    row, scaler = DeploymentRow("e", "d", spec, {}, 1, 0.0, "me"), Scaler()
    busy = 0.0

    def after(seconds: float, load: float, is_ready: bool = True) -> int:
        nonlocal row, busy, now
        now, busy = now + seconds, busy + seconds * load
        row = row._replace(scaled=scaler.instances(row, busy, is_ready, now))
        return instances_of(row)

    now = 1000.0
    assert after(0, 0) == 1
    assert after(20, 0, is_ready=False) == 1, "it has to show that it works"
    assert after(10, 0) == 0
    assert after(0.2, 0) == 0
    assert after(0.2, 0.5) == 1
    assert after(0.5, 9) == 1, "not before its interval"
    assert after(1, 9) == 3
    assert after(9, 0.1) == 3
    assert after(1, 0.1) == 1
    busy = 0.0  # a new router
    assert after(1, 2) == 3
    row = row._replace(revision=2, scaled=None)
    assert after(100, 0) == 1


def test_no_return_to_a_model_that_was_deleted():
    def gone(reference: object) -> None:
        raise NotFound("model birds:1 not found")

    services: Any = SimpleNamespace(models=SimpleNamespace(versions=SimpleNamespace(row=gone)))
    row = DeploymentRow("e", "d", {"model": "azureml:birds:2"}, {}, 2, 0.0, "me")
    _require_model(row, services)
    before = {"spec": {"model": "azureml:birds:1"}}
    with pytest.raises(Conflict, match="e/d cannot go back: its model azureml:birds:1 was deleted"):
        _require_model(row._replace(previous=before), services)


def test_the_job_that_failed_is_known_by_its_name(tmp_path: Path):
    error: dict[str, Any] = {"message": "exited with code 4"}
    job = SimpleNamespace(error=error)
    records = SimpleNamespace(latest=lambda name: job)
    services: Any = SimpleNamespace(records=records, channels=None, home=Home(tmp_path))
    keeper = Keeper(services)
    spec = {"name": "d", "endpoint_name": "e", "command": "x"}
    row = DeploymentRow("e", "d", spec, {}, 1, 0.0, "me")
    replica = ReplicaRow("r", 1, "unix:a", 0.0)
    failed = keeper._failed(row, replica, Replica("r", 1, ended=True), {}, 1.0)
    assert (failed["failed_job"], failed["reason"]) == ("r", "r: exited with code 4")
    error["evidence"] = {"line": "ValueError: no licence", "where": "score.py:4"}
    failed = keeper._failed(row, replica, Replica("r", 1, ended=True), {}, 1.0)
    assert failed["reason"] == "r: failed at score.py:4: ValueError: no licence"
    refused = keeper._refused(row, NotFound("the environment x is gone"), 1.0)
    assert refused["failed_job"] is None


def test_a_script_that_loads_for_long_is_named_with_its_limit():
    record = SimpleNamespace(status=JobStatus.RUNNING)
    job = SimpleNamespace(record=record, started_at=time.time() - 40.5)
    services: Any = SimpleNamespace(records=SimpleNamespace(latest=lambda name: job))
    spec = {"name": "d", "endpoint_name": "e", "code_configuration": {"scoring_script": "score.py"}}
    row = DeploymentRow("e", "d", spec, {}, 1, 0.0, "me")
    reason = _reason(row, Replica("r", 1), "nothing listens on its socket or port yet", services)
    assert reason == "init() of score.py runs since 40 s; readiness_probe allows 310 s"
    reason = _reason(row, Replica("r", 1), "/ answered 503", services)
    assert reason == "/ answered 503; it runs since 40 s; readiness_probe allows 310 s"
    assert _reason(row, Replica("r", 1, ready=True), None, services) is None


def test_a_replica_whose_cancellation_fails_is_cancelled_at_the_next_look(tmp_path: Path):
    failures, sent = [OSError("the disk is full")], []

    def append(name: str, events: list[object]) -> None:
        if failures:
            raise failures.pop()
        sent.append(name)

    record = SimpleNamespace(status=JobStatus.RUNNING, canceled=False)
    job = SimpleNamespace(record=record, event=lambda kind: kind)
    records = SimpleNamespace(latest=lambda name: job, append=append)
    loops = SimpleNamespace(wake=lambda name: None)
    services: Any = SimpleNamespace(
        records=records, loops=loops, channels=None, home=Home(tmp_path)
    )
    keeper = Keeper(services)
    with pytest.raises(OSError, match="full"):
        keeper._cancel("r")
    keeper._cancel("r")
    keeper._cancel("r")
    assert sent == ["r"]


class FailingReplicas(Keeper):
    """Each ends two seconds after it was started."""

    started: ClassVar[list[float]] = []

    def _start(self, row: DeploymentRow, replica: ReplicaRow) -> None:
        self.started.append(replica.started_at)


def test_a_deployment_that_fails_is_tried_less_and_less_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = [1000.0]
    monkeypatch.setattr(keeper_module.time, "time", lambda: now[0])
    database = open_database(tmp_path / "db")
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(database.dispose)
        endpoints = Endpoints(Settings(database), None)  # type: ignore[arg-type]
        endpoints.put(EndpointRow("e", {"name": "e"}, [], 0.0, "me"))
        spec = {"name": "d", "endpoint_name": "e", "command": "x", "instance_count": 2}
        row = DeploymentRow("e", "d", spec, {"spec": {"command": "x"}}, 1, 0.0, "me")
        endpoints.create_deployment(row)

        def latest(name: str) -> object:
            (begun,) = (r.started_at for r in endpoints.deployments()[0].replicas if r.job == name)
            status = JobStatus.FAILED if now[0] >= begun + 2 else JobStatus.RUNNING
            record = SimpleNamespace(status=status)
            return SimpleNamespace(record=record, error={"message": "no"}, started_at=begun)

        clusters = SimpleNamespace(
            find=lambda name: None, kind=lambda compute: SimpleNamespace(remote=True)
        )
        services: Any = SimpleNamespace(
            records=SimpleNamespace(latest=latest),
            channels=None,
            home=Home(tmp_path),
            endpoints=endpoints,
            clusters=clusters,
        )
        keeper = FailingReplicas(services)
        keeper.started.clear()
        while now[0] < 1000 + 26:
            keeper._advance(endpoints.deployments()[0], {})
            now[0] += 0.25
        assert len(keeper.started) == 6  # two, then one each
        assert [b - a for a, b in pairwise(keeper.started[1:])] == [3.0, 4.0, 6.0, 10.0]
        while now[0] < 1000 + 7200:
            is_on_its_way = keeper._advance(endpoints.deployments()[0], {})
            now[0] += 5
        assert (len(keeper.started), is_on_its_way) == (13, False)
        shown = endpoints.deployments()[0]
        assert "given up" in tries(shown.failures, shown.was_ready, 0.0)
        # One that was ready once is tried on, every five minutes.
        endpoints.change(shown, ready_revision=1)
        keeper._advance(endpoints.deployments()[0], {})
        assert len(keeper.started) == 14
