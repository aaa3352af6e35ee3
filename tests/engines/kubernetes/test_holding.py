"""When a gang releases the part of its nodes that it has, on a simulated clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.engines.kubernetes.holding import Hold, Refusal, Step, decide, pause
from allranks.engines.kubernetes.views import JobView, PodView

KEYS = st.from_regex(r"[a-z]{1,8}\.[1-9]", fullmatch=True)
LIMITS = st.sampled_from([None, 3.0, 120.0])
# Seconds that the Job controller and the scheduler need for a gang.
SCHEDULING = 2.0
QUOTA = "exceeded quota: team, requested: cpu=1, used: cpu=2, limited: cpu=2"


class Gang:
    """A gang at a scheduler that places its pods one by one, and refuses those with no place."""

    def __init__(self, key: str, nodes: int) -> None:
        self.job = JobView(key, key, nodes)
        self.placed = 0
        self.tried_at = 0.0
        self.hold = Hold()
        self.held_for = 0.0
        self.started_at = -1.0

    def pods(self, now: float) -> list[PodView]:
        if self.job.suspended:
            return []
        refused = now >= self.tried_at + SCHEDULING
        return [
            PodView(
                f"p{n}", self.job.name, n, "Pending", host="h" if n < self.placed else ""
            )._replace(refused=refused and n >= self.placed, unscheduled="0/3 nodes are available")
            for n in range(self.job.nodes)
        ]

    def poll(self, now: float, limit: float | None) -> None:
        self.hold, step = decide(self.hold, self.job, self.pods(now), now, limit)
        if step is not Step.STAY:
            self.job = self.job._replace(suspended=step is Step.RELEASE)
            self.placed, self.tried_at = 0, now


def simulate(places: int, gangs: list[Gang], seconds: int, limit: float | None) -> None:
    """Once a second each gang gets one more node if one is free, and is polled. A gang that has all
    of its nodes keeps them for five seconds, and leaves."""
    for now in range(seconds):
        for gang in gangs:
            if 0 <= gang.started_at < now - 5:
                gang.placed = 0
            if gang.started_at >= 0:
                continue
            free = places - sum(other.placed for other in gangs)
            if not gang.job.suspended and free and gang.placed < gang.job.nodes:
                gang.placed += 1
            if gang.placed == gang.job.nodes:
                gang.started_at = now
            gang.poll(now, limit)
            gang.held_for += bool(gang.placed)


@pytest.mark.medium
@given(KEYS, st.integers(2, 50), st.integers(1, 20))
def test_a_gang_that_never_fits_holds_hardly_anything(key: str, nodes: int, places: int):
    gang = Gang(key, nodes + places)
    simulate(places, [gang], 3600, None)
    assert gang.started_at < 0
    assert gang.held_for / 3600 < 0.06


@settings(max_examples=15)  # each simulates three hours
@given(KEYS)
def test_with_an_autoscaler_it_holds_less_and_less(key: str):
    gang = Gang(key, 4)
    simulate(3, [gang], 3 * 3600, 120.0)
    assert gang.held_for / (3 * 3600) < 0.25


@given(st.lists(KEYS, min_size=2, max_size=3, unique=True), LIMITS)
def test_gangs_that_block_each_other_all_run(keys: list[str], limit: float | None):
    gangs = [Gang(key, 2) for key in keys]
    simulate(3, gangs, 3 * 3600, limit)
    assert all(gang.started_at >= 0 for gang in gangs)


@given(KEYS, st.integers(1, 10_000), LIMITS)
def test_pauses_grow_up_to_a_bound(key: str, releases: int, limit: float | None):
    least = pause(key, releases, limit)
    assert 5 <= least <= max(120.0, 8 * (limit or 0))
    assert pause(key, releases + 2, limit) >= min(least, 60.0)


def waits(*hosts: str) -> list[PodView]:
    """Pods of which some have a node; the scheduler refuses the others."""
    return [
        PodView(f"p{n}", "j", n, "Pending", host=host, refused=not host, unscheduled="no node")
        for n, host in enumerate(hosts)
    ]


JOB = JobView("j", "fox.1", 3)


def test_nothing_is_held_beyond_the_first_refusal():
    hold, step = decide(Hold(), JOB, waits("a", "b", ""), 100.0)
    assert (step, hold.releases, hold.words) == (Step.RELEASE, 1, "no node")
    # The watch shows the suspension a moment later: it is one release.
    assert decide(hold, JOB, waits("a", "b", ""), 101.0) == (hold, Step.STAY)


def test_pods_that_are_not_refused_are_waited_for():
    pods = [pod._replace(refused=False) for pod in waits("a", "b", "")]
    hold, step = decide(Hold(), JOB, pods, 100.0)
    assert step is Step.STAY
    assert decide(hold, JOB, pods, 219.0)[1] is Step.STAY
    assert decide(hold, JOB, pods, 221.0)[1] is Step.RELEASE


def test_a_gang_in_the_schedulers_queue_gets_its_pods_one_after_the_other():
    """The scheduler tries a refused pod again after up to ten seconds."""
    hold, step = decide(Hold(), JOB, waits("", "", ""), 100.0)
    assert step is Step.STAY
    hold, step = decide(hold, JOB, waits("a", "", ""), 101.0)
    assert step is Step.STAY
    assert decide(hold, JOB, waits("a", "b", "c"), 110.0) == (Hold(), Step.STAY)
    assert decide(hold, JOB, waits("a", "b", ""), 114.0)[1] is Step.RELEASE


def test_a_quota_counts_pods_without_nodes_too():
    refusal = Refusal(QUOTA)
    hold, step = decide(Hold(), JOB, waits("", ""), 100.0, refusal=refusal)
    assert (step, hold.words) == (Step.RELEASE, QUOTA)
    assert decide(Hold(), JOB, [], 100.0, refusal=refusal)[1] is Step.STAY


def test_what_can_never_be_is_not_tried_again():
    hold, step = decide(Hold(), JOB, waits("a", ""), 100.0, 120.0, Refusal(QUOTA, never=True))
    assert step is Step.RELEASE
    assert decide(hold, JOB._replace(suspended=True), [], 1e6)[1] is Step.STAY


def test_it_tries_again_once_its_pods_are_gone():
    hold, _ = decide(Hold(), JOB, waits("a", ""), 100.0)
    suspended = JOB._replace(suspended=True)
    assert hold.again is not None
    assert decide(hold, suspended, waits("a"), hold.again)[1] is Step.STAY
    assert decide(hold, suspended, [], hold.again - 0.1)[1] is Step.STAY
    hold, step = decide(hold, suspended, [], hold.again)
    assert step is Step.RESUME
    # As long as the watch shows it suspended, it is resumed once more, which changes nothing.
    assert decide(hold, suspended, [], hold.again or 0)[1] is Step.RESUME
    assert decide(hold, JOB, waits("a", ""), hold.again or 0)[1] is Step.RELEASE


@pytest.mark.parametrize("change", [{"queue": "team-a"}, {"end": "Failed"}, {"deleted": True}])
def test_kueues_and_ended_gangs_are_left_alone(change: dict[str, object]):
    assert decide(Hold(), JOB._replace(**change), waits("a", ""), 100.0)[1] is Step.STAY
