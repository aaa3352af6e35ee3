"""States of deployments and endpoints."""

from __future__ import annotations

from allranks.core.endpoints.states import ReplicaState, endpoint_state, state


def test_states():
    ready, other = ReplicaState("a", 2, ready=True), ReplicaState("b", 1, ready=True)
    assert state([], 1, 1, 0) == "Creating"
    assert state([ready], 2, 1, 0) == "Ready"
    assert state([other], 2, 1, 0) == "Updating"
    assert state([ready], 2, 2, 0) == "Updating"
    assert state([ready], 2, 2, 1) == "Degraded"
    assert state([ready, other], 2, 2, 2) == "Updating"
    assert state([ready, other], 2, 2, 3) == "Degraded", "the second one never starts"
    assert state([], 1, 1, 3) == "Failed"
    assert state([other], 2, 1, 3) == "UpdateFailed"


def test_an_endpoint_serves_whatever_became_of_a_deployment_without_traffic():
    states = {"blue": "Ready", "green": "Failed"}
    assert endpoint_state(states, {"blue": 100, "green": 0}) == "Ready"
    assert endpoint_state(states, {"blue": 90, "green": 10}) == "Failed"
    assert endpoint_state(states, {}) == "Failed", "none answers"
    assert endpoint_state({}, {}) == "Empty"
