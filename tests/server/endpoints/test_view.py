"""What is answered about endpoints."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from allranks.core.endpoints.record import Deployment, Replica
from allranks.core.endpoints.states import ReplicaState, state
from allranks.server.endpoints.view import _reason, _replicas
from allranks.statuses import JobStatus


def test_an_update_is_ready_when_the_router_asks_none_of_before():
    old = Replica("old", 1, "unix:a", 0.0, True, drains_since=1.0)
    row = Deployment(
        "e", "blue", {}, {}, 2, 0.0, "me", replicas=(old, Replica("new", 2, "unix:b", 0.0, True))
    )
    reports = {"old": {"ready": True, "drains": False}, "new": {"ready": True, "drains": False}}
    assert state(_replicas(row, reports), 2, 1, 0) == "Updating"
    reports["old"]["drains"] = True
    assert state(_replicas(row, reports), 2, 1, 0) == "Ready"


def test_a_script_that_loads_for_long_is_named_with_its_limit():
    record = SimpleNamespace(status=JobStatus.RUNNING)
    job = SimpleNamespace(record=record, started_at=time.time() - 40.5)
    services: Any = SimpleNamespace(records=SimpleNamespace(latest=lambda name: job))
    spec = {"name": "d", "endpoint_name": "e", "code_configuration": {"scoring_script": "score.py"}}
    row = Deployment("e", "d", spec, {}, 1, 0.0, "me")
    reason = _reason(
        row, ReplicaState("r", 1), "nothing listens on its socket or port yet", services
    )
    assert reason == "init() of score.py runs since 40 s; readiness_probe allows 310 s"
    reason = _reason(row, ReplicaState("r", 1), "/ answered 503", services)
    assert reason == "/ answered 503; it runs since 40 s; readiness_probe allows 310 s"
    assert _reason(row, ReplicaState("r", 1, ready=True), None, services) is None
