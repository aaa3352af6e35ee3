"""Replicas of a deployment: updates, scaling, failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.core.replicas import (
    DRAIN,
    STEADY,
    Replica,
    Steps,
    after_failure,
    decide,
    endpoint_state,
    pause,
    state,
    with_share,
)

NOW = 1000.0


def test_missing_ones_start_and_surplus_ones_drain():
    assert decide([], 1, 2, NOW, 0.0) == Steps(start=2)
    assert decide([], 1, 2, NOW, NOW + 1) == Steps(), "not before its time"
    several = [Replica("slow", 1), Replica("a", 1, ready=True), Replica("b", 1, ready=True)]
    assert decide(several, 1, 2, NOW, 0.0) == Steps(drain=("slow",)), "ready ones stay"


def test_an_update_keeps_as_many_as_are_ready():
    old = [Replica("a", 1, ready=True), Replica("b", 1, ready=True)]
    assert decide(old, 2, 2, NOW, 0.0) == Steps(start=2)
    half = [*old, Replica("c", 2, ready=True), Replica("d", 2)]
    assert decide(half, 2, 2, NOW, 0.0) == Steps(drain=("b",))
    done = [*old, Replica("c", 2, ready=True), Replica("d", 2, ready=True)]
    assert decide(done, 2, 2, NOW, 0.0) == Steps(drain=("a", "b"))


def test_an_update_to_fewer_keeps_all_until_one_is_ready():
    old = [Replica("a", 1, ready=True), Replica("b", 1, ready=True), Replica("c", 1)]
    assert decide(old, 2, 1, NOW, 0.0) == Steps(start=1, drain=("c",))
    assert decide(old[:2], 2, 1, NOW, NOW + 1) == Steps(), "it has failed"
    assert decide([*old[:2], Replica("d", 2, ready=True)], 2, 1, NOW, 0.0).drain == ("a", "b")
    assert decide(old[:2], 2, 0, NOW, 0.0).drain == ("a", "b"), "it is deleted"


def test_a_draining_one_stops_when_its_requests_are_answered():
    one = Replica("a", 1, ready=True, drains_since=NOW, running=1)
    assert decide([one], 1, 0, NOW + 1, 0.0) == Steps()
    assert decide([one._replace(running=0)], 1, 0, NOW + 1, 0.0) == Steps(stop=("a",))
    assert decide([one], 1, 0, NOW + DRAIN, 0.0) == Steps(stop=("a",))


def test_one_that_is_late_stops_and_is_replaced():
    assert decide([Replica("a", 1, late=True)], 1, 1, NOW, 0.0) == Steps(start=1, stop=("a",))


def test_states():
    ready, other = Replica("a", 2, ready=True), Replica("b", 1, ready=True)
    assert state([], 1, 1, 0) == "Creating"
    assert state([ready], 2, 1, 0) == "Ready"
    assert state([other], 2, 1, 0) == "Updating"
    assert state([ready], 2, 2, 0) == "Updating"
    assert state([ready], 2, 2, 1) == "Degraded"
    assert state([ready, other], 2, 2, 2) == "Updating"
    assert state([ready, other], 2, 2, 3) == "Degraded", "the second one never starts"
    assert state([], 1, 1, 3) == "Failed"
    assert state([other], 2, 1, 3) == "UpdateFailed"
    assert [pause(n) for n in (0, 1, 2, 20)] == [0.0, 1.0, 2.0, 300.0]


def test_an_endpoint_serves_whatever_became_of_a_deployment_without_traffic():
    states = {"blue": "Ready", "green": "Failed"}
    assert endpoint_state(states, {"blue": 100, "green": 0}) == "Ready"
    assert endpoint_state(states, {"blue": 90, "green": 10}) == "Failed"
    assert endpoint_state(states, {}) == "Failed", "none answers"
    assert endpoint_state({}, {}) == "Empty"


def test_one_that_dies_soon_after_it_was_ready_is_no_endless_loop():
    assert after_failure(0, True, STEADY) == (1, 0.0)
    assert after_failure(7, True, STEADY) == (1, 0.0)
    assert after_failure(0, True, 2.0) == (1, 1.0)
    assert after_failure(3, True, 2.0) == (4, 8.0)
    assert after_failure(3, False, STEADY) == (4, 8.0)


steps = st.lists(st.sampled_from(["ready", "update", "more", "less", "end"]), max_size=40)


@given(steps, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_whatever_happens_it_gets_there_and_an_update_takes_nothing_away(several, random):
    replicas: list[Replica] = []
    revision, instances, number, now = 1, 2, 0, NOW
    for step in [*several, *["ready", "ready"] * 20]:
        now += 1
        before = sum(each.ready and each.drains_since is None for each in replicas)
        if step == "ready" and replicas:
            waiting = [n for n, each in enumerate(replicas) if not each.ready]
            if waiting:
                replicas[waiting[0]] = replicas[waiting[0]]._replace(ready=True)
        elif step == "update":
            revision += 1
        elif step == "more":
            instances = min(5, instances + 1)
        elif step == "less":
            instances = max(1, instances - 1)
        elif step == "end" and replicas:
            replicas.pop(random.randrange(len(replicas)))
        found = decide(replicas, revision, instances, now, 0.0)
        replicas = [each for each in replicas if each.job not in found.stop]
        replicas = [
            each._replace(drains_since=now) if each.job in found.drain else each
            for each in replicas
        ]
        for _ in range(found.start):
            number += 1
            replicas.append(Replica(str(number), revision))
        after = sum(each.ready and each.drains_since is None for each in replicas)
        if step in ("ready", "update"):
            assert after >= min(before, instances)
    assert [each.revision for each in replicas if each.drains_since is None] == [
        revision
    ] * instances
    assert state(replicas, revision, instances, 0) == "Ready"


@pytest.mark.parametrize(
    ("before", "percent", "after"),
    [
        ({}, 30, {"new": 100}),
        ({"old": 100}, 25, {"new": 25, "old": 75}),
        ({"old": 100, "none": 0}, 100, {"new": 100}),
        ({"a": 50, "b": 25, "new": 25}, 50, {"new": 50, "a": 33, "b": 17}),
    ],
)
def test_a_share_is_taken_from_all(before: dict[str, int], percent: int, after: dict[str, int]):
    assert with_share(before, "new", percent) == after
