"""What is done next for a deployment: updates, scaling, failures."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.core.endpoints import changes
from allranks.core.endpoints.decide import DRAIN, Steps, decide, next_steps, refused, starting
from allranks.core.endpoints.events import Event, Kind, sentence
from allranks.core.endpoints.fold import fold_all
from allranks.core.endpoints.patience import HOPELESS, MOST_TRIES, STEADY
from allranks.core.endpoints.record import Deployment, Endpoint, Replica, Revision
from allranks.core.endpoints.states import ReplicaState, state
from allranks.core.packing import pack, unpack
from allranks.errors import AllranksError

NOW = 1000.0


def test_missing_ones_start_and_surplus_ones_drain():
    assert next_steps([], 1, 2, NOW, 0.0) == Steps(start=2)
    assert next_steps([], 1, 2, NOW, NOW + 1) == Steps(), "not before its time"
    several = [
        ReplicaState("slow", 1),
        ReplicaState("a", 1, ready=True),
        ReplicaState("b", 1, ready=True),
    ]
    assert next_steps(several, 1, 2, NOW, 0.0) == Steps(drain=("slow",)), "ready ones stay"


def test_an_update_keeps_as_many_as_are_ready():
    old = [ReplicaState("a", 1, ready=True), ReplicaState("b", 1, ready=True)]
    assert next_steps(old, 2, 2, NOW, 0.0) == Steps(start=2)
    half = [*old, ReplicaState("c", 2, ready=True), ReplicaState("d", 2)]
    assert next_steps(half, 2, 2, NOW, 0.0) == Steps(drain=("b",))
    done = [*old, ReplicaState("c", 2, ready=True), ReplicaState("d", 2, ready=True)]
    assert next_steps(done, 2, 2, NOW, 0.0) == Steps(drain=("a", "b"))


def test_an_update_to_fewer_keeps_all_until_one_is_ready():
    old = [ReplicaState("a", 1, ready=True), ReplicaState("b", 1, ready=True), ReplicaState("c", 1)]
    assert next_steps(old, 2, 1, NOW, 0.0) == Steps(start=1, drain=("c",))
    assert next_steps(old[:2], 2, 1, NOW, NOW + 1) == Steps(), "it has failed"
    assert next_steps([*old[:2], ReplicaState("d", 2, ready=True)], 2, 1, NOW, 0.0).drain == (
        "a",
        "b",
    )
    assert next_steps(old[:2], 2, 0, NOW, 0.0).drain == ("a", "b"), "it is deleted"


def test_a_draining_one_stops_when_its_requests_are_answered():
    one = ReplicaState("a", 1, ready=True, drains_since=NOW, running=1)
    assert next_steps([one], 1, 0, NOW + 1, 0.0) == Steps()
    assert next_steps([one._replace(running=0)], 1, 0, NOW + 1, 0.0) == Steps(stop=("a",))
    assert next_steps([one], 1, 0, NOW + DRAIN, 0.0) == Steps(stop=("a",))


def test_one_that_is_late_stops_and_is_replaced():
    assert next_steps([ReplicaState("a", 1, late=True)], 1, 1, NOW, 0.0) == Steps(
        start=1, stop=("a",)
    )


class World:
    """An endpoint with two deployments, whose replicas a cluster starts and ends.

    ``bad``: the commands whose replicas never get ready.
    """

    def __init__(self) -> None:
        self.now, self.number = NOW, 0
        self.events = changes.create(None, "e", {"name": "e"}, self.now, "ann")
        self.endpoint = fold_all(None, self.events)
        self.router = self.endpoint
        self.ready: set[str] = set()
        self.ended: set[str] = set()
        self.commands: dict[str, str] = {}
        self.bad: set[str] = set()
        self.refuses = False
        self.started: list[float] = []
        self.sentences: list[str] = []

    def row(self, name: str = "a") -> Deployment:
        return self.endpoint.deployments[name]

    def append(self, events: list[Event]) -> None:
        self.events += events
        self.sentences += [sentence(event) for event in events]
        self.endpoint = fold_all(self.endpoint, events)

    def revision(self, name: str, command: str, count: int = 1) -> Revision:
        spec = {"name": name, "endpoint_name": "e", "command": command, "instance_count": count}
        return Revision(spec, {"spec": {"command": command}}, "", 1)

    def deploy(self, name: str = "a", command: str = "good", count: int = 1, percent: int = 0):
        new = self.revision(name, command, count)
        self.append(changes.deploy(self.endpoint, name, new, percent, self.now, "ann"))

    def update(self, command: str, name: str = "a", percent: int = 0):
        count = self.row(name).instances
        new = self.revision(name, command, count)
        self.append(changes.update(self.endpoint, name, new, percent, self.now, "ann"))

    def seen(self, row: Deployment) -> list[ReplicaState]:
        return [
            ReplicaState(
                item.job,
                item.revision,
                item.job in self.ready and item.job not in self.ended,
                item.job in self.ended,
                drains_since=item.drains_since,
                why="no such model",
            )
            for item in row.replicas
        ]

    def look(self, seconds: float = 1.0) -> None:
        """The keeper's look, after some seconds in which the cluster did what it was told."""
        self.now += seconds
        for row in self.endpoint.deployments.values():
            for item in row.replicas:
                is_bad = self.commands[item.job] in self.bad
                (self.ended if is_bad else self.ready).add(item.job)
        for name in sorted(self.endpoint.deployments):
            row = self.row(name)
            decision = decide(self.endpoint, name, self.seen(row), row.instances, self.now)
            new = []
            for _ in range(decision.start):
                self.number += 1
                new.append(Replica(f"j{self.number}", row.revision, "unix:x", self.now))
            self.append([*decision.events, *(starting(name, item) for item in new)])
            self.ended |= {*decision.stop}
            self.started += [self.now] * len(new)
            if self.refuses and new:
                jobs = [item.job for item in new]
                self.append(refused(self.row(name), jobs, "quota", self.now))
            for item in new:
                self.commands[item.job] = row.submission["spec"]["command"]

    def answering(self, name: str = "a") -> int:
        """Replicas that get requests and answer."""
        return sum(
            item.drains_since is None and item.job in self.ready - self.ended
            for item in self.row(name).replicas
        )

    def state(self, name: str = "a") -> str:
        row = self.row(name)
        return state(self.seen(row), row.revision, row.instances, row.failures)


def test_a_rollout_that_fails_leaves_what_answers_and_goes_back():
    world = World()
    world.bad = {"bad"}
    world.deploy(count=2, percent=100)
    for _ in range(3):
        world.look()
    assert (world.state(), dict(world.endpoint.traffic)) == ("Ready", {"a": 100})
    before = {item.job for item in world.row().replicas}
    world.update("bad")
    for _ in range(20):
        world.look()
        assert world.answering() == 2
    assert world.state() == "UpdateFailed"
    started = len(world.started)
    world.append(changes.update(world.endpoint, "a", None, 0, world.now, "ann"))
    for _ in range(3):
        world.look()
    assert world.state() == "Ready"
    assert {item.job for item in world.row().replicas} == before, "none starts anew"
    assert len(world.started) == started
    assert world.row().revision == 1
    reasons = [text for text in world.sentences if "no such model" in text]
    assert reasons[3].endswith("j6: no such model; 3 tries in a row failed; the next one is in 4 s")
    assert "goes back to the revision before" in world.sentences


def test_patience_ends_for_what_never_was_ready():
    world = World()
    world.bad = {"bad"}
    world.deploy(command="bad")
    for _ in range(4000):
        world.look()
    assert len(world.started) == MOST_TRIES
    assert world.row().failures == MOST_TRIES
    assert world.sentences[-1].endswith("it is given up until it is updated")
    world.update("good")
    for _ in range(3):
        world.look()
    assert world.state() == "Ready"


def test_what_was_ready_once_is_tried_on_and_recovers():
    world = World()
    world.deploy()
    for _ in range(3):
        world.look()
    world.bad = {"good"}
    for _ in range(3000):
        world.look()
    assert world.state() == "Failed"
    tries = len(world.started)
    world.look(301)
    world.look(301)
    assert len(world.started) > tries, "a cluster may be away for a night"
    world.bad = set()
    for _ in range(310):
        world.look()
    assert (world.state(), world.row().reason) == ("Ready", None)
    for _ in range(int(STEADY)):
        world.look()
    assert world.row().failures == 0


def test_a_share_moves_when_the_deployment_is_ready_and_arrives_at_the_next_look():
    world = World()
    world.deploy("a", percent=100)
    for _ in range(3):
        world.look()
    world.deploy("b", percent=10)
    assert dict(world.endpoint.traffic) == {"a": 100}
    world.look()
    world.look()
    assert dict(world.endpoint.traffic) == {"b": 10, "a": 90}
    assert world.row("b").takes_traffic == 10, "until the router knows it"
    world.look()
    assert world.row("b").takes_traffic == 0
    # What a person says ends what a deployment waits for.
    world.update("good", "b", percent=50)
    world.append(changes.change(world.endpoint, {"traffic": {"a": 100}}, world.now, "ann"))
    for _ in range(5):
        world.look()
    assert dict(world.endpoint.traffic) == {"a": 100}


def test_one_that_cannot_be_submitted_says_why():
    world = World()
    world.refuses = True
    world.deploy(count=3)
    world.look()
    row = world.row()
    assert (row.replicas, row.reason, row.failed_job, row.failures) == ((), "quota", None, 1)
    why = "j1 could not be submitted: quota; the last try failed; the next one is in 1 s"
    assert why in world.sentences


def test_a_number_by_hand_takes_back_an_update_that_failed():
    world = World()
    world.bad = {"bad"}
    world.deploy()
    for _ in range(3):
        world.look()
    world.update("bad")
    for _ in range(20):
        world.look()
    assert world.row().failures >= HOPELESS
    world.append(changes.resize(world.endpoint, "a", 2, True, world.now, "ann"))
    for _ in range(4):
        world.look()
    assert (world.state(), world.answering(), world.row().revision) == ("Ready", 2, 1)


def test_the_last_replica_of_a_deleted_one_ends_it():
    world = World()
    world.deploy()
    for _ in range(3):
        world.look()
    world.append([Event(Kind.DELETED, world.now, by="ann")])
    assert world.row().is_deleted
    for _ in range(4):
        world.look()
    assert world.endpoint.is_gone


PEOPLE = ("deploy", "update", "fails", "back", "more", "less", "delete", "share", "traffic")
CLUSTER = ("look", "end", "unready", "refuse", "accept", "router")


def step(world: World, word: str, name: str, random: Any) -> None:
    """Something happens; what people may not do now is refused."""
    try:
        if word == "deploy":
            world.deploy(name, percent=random.choice((0, 10, 100)))
        elif word in ("update", "fails"):
            command = "good" if word == "update" else "bad"
            if name in world.endpoint.deployments:
                world.update(command, name, percent=random.choice((0, 50)))
        elif word == "back":
            world.append(changes.update(world.endpoint, name, None, 0, world.now, "ann"))
        elif word in ("more", "less"):
            row = changes.deployment_of(world.endpoint, name)
            count = max(1, row.instances + (1 if word == "more" else -1))
            takes_back = world.state(name) == "UpdateFailed"
            world.append(
                changes.resize(world.endpoint, name, min(count, 4), takes_back, world.now, "ann")
            )
        elif word == "delete":
            world.append(changes.delete(world.endpoint, name, world.now, "ann"))
        elif word == "traffic":
            names = [row.name for row in world.endpoint.answering]
            traffic = dict.fromkeys(names, 0)
            if names and random.random() < 0.7:
                traffic[names[0]] = 100
            world.append(changes.change(world.endpoint, {"traffic": traffic}, world.now, "ann"))
        elif word == "share":
            row = changes.deployment_of(world.endpoint, name)
            world.append(changes.update(world.endpoint, name, row.current, 25, world.now, "ann"))
        elif word == "end":
            jobs = [
                item.job for row in world.endpoint.deployments.values() for item in row.replicas
            ]
            world.ended |= {random.choice(jobs)} if jobs else set()
        elif word == "unready":
            world.ready.clear()
        elif word in ("refuse", "accept"):
            world.refuses = word == "refuse"
    except AllranksError:
        pass
    world.look(random.choice((0.05, 1.0, 40.0)))


@given(
    st.lists(st.tuples(st.sampled_from(PEOPLE + CLUSTER), st.sampled_from("ab")), max_size=30),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_it_gets_there(words: list[tuple[str, str]], random: Any):
    world = World()
    world.bad = {"bad"}
    for word, name in words:
        before = {row.name: world.answering(row.name) for row in world.endpoint.answering}
        step(world, word, name, random)
        assert sum(world.endpoint.traffic.values()) in (0, 100)
        if word in ("update", "fails", "back", "share"):  # an update takes nothing away
            for row in world.endpoint.answering:
                assert world.answering(row.name) >= min(before.get(row.name, 0), row.instances)
    # Without further faults none is stuck.
    world.refuses, world.bad = False, set()
    for _ in range(6):
        world.look(301)
    for row in world.endpoint.answering:
        if world.state(row.name) != "Ready":
            assert row.failures >= MOST_TRIES, "it was given up"
            assert not row.was_ready
        assert not (row.takes_traffic and world.state(row.name) == "Ready")
        assert all(item.drains_since is None for item in row.replicas)
    assert not any(row.is_deleted for row in world.endpoint.deployments.values())
    # The record is the fold of its events, and goes to the database and back.
    assert fold_all(None, world.events) == world.endpoint
    assert unpack(Endpoint, pack(world.endpoint)) == world.endpoint
    assert world.endpoint.version == len(world.events)
