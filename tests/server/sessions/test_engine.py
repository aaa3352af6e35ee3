"""The engine whose nodes are those of sessions: what agents say of guests, and the end of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks import clock
from allranks.core.job.sessions import on_nodes_of_parent
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.engines.base import GangStatus, Handle
from allranks.events import Kind
from allranks.server.loop.wakeups import Wakeups
from allranks.server.sessions.engine import SessionEngine
from allranks.statuses import GangState, JobStatus, Reason
from allranks.store.database import opened_database
from allranks.store.jobs.job_rows import Child, JobRow
from allranks.store.jobs.records import Records

GUEST = Handle("guest.1")


class Bed:
    """A session and another job, as the record has them, and the engine."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.engine = SessionEngine(records, Wakeups(), lambda row: {})
        self.session = self.make("dev-s", {"session": {}})

    def make(self, name: str, spec: dict[str, Any]) -> JobRow:
        gang = Gang(f"{name}.1", 1, (), options={"session": "dev-s"})
        plan = Plan(gang, Task(name, "e", "c"), Rules(), "x")
        self.records.create(spec, plan)
        return self.records.get(name)

    def tell(self, kind: Kind, row: JobRow | None = None, **data: Any) -> None:
        row = row or self.session
        self.records.append(row.name, [row.event(kind, node=0, data=data)])

    def status(self) -> GangStatus:
        return self.engine.poll([GUEST])[GUEST.key]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with opened_database(tmp_path / "db") as database:
        yield Bed(Records(database))


def test_a_stopped_guest_lives_only_as_long_as_its_session(bed: Bed):
    bed.engine.orders(bed.session, 0, {GUEST.key: True})
    assert bed.status().state is GangState.UNKNOWN
    bed.tell(Kind.CLOSING, purpose="finish", reason=Reason.NODE_LOST)
    bed.tell(Kind.FINISHED, status=JobStatus.FAILED)
    assert bed.status().state is GangState.GONE


def test_the_agent_of_a_job_that_is_no_session_says_nothing_of_guests(bed: Bed):
    assert bed.engine.orders(bed.make("other", {}), 0, {GUEST.key: True}) is None
    assert bed.status().state is GangState.GONE


def test_a_guest_has_time_to_save_when_its_session_ends(bed: Bed):
    for kind in (Kind.SUBMITTED, Kind.HELLO, Kind.GO):
        bed.tell(kind)
    guest = bed.make("guest", {"inside": "dev-s"})
    bed.engine.submit(guest.plan.gang)
    bed.tell(Kind.SUBMITTED, guest)
    bed.tell(Kind.HELLO, guest)
    assert bed.status() == GangStatus(GangState.UP)
    bed.tell(Kind.CLOSING, purpose="finish", reason=Reason.CANCELED)
    assert bed.status() == GangStatus(GangState.UP, taken="dev-s ends")
    bed.tell(Kind.BYE, guest)
    assert bed.status() == GangStatus(GangState.GONE, "dev-s ends", reason=Reason.CANCELED)


class Pool:
    """A sweep that keeps nodes, and the trials on them, as the record has them."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.engine = SessionEngine(records, Wakeups(), lambda row: {})
        self.rules = Rules(max_attempts=3)
        self._create("s", 0, {}, type="sweep")

    def _create(self, name: str, nodes: int, spec: dict[str, Any], **more: Any) -> None:
        plan = Plan(Gang(f"{name}.1", nodes, ()), Task(name, "e", "c"), self.rules, "slurm")
        if nodes and not spec:
            plan = on_nodes_of_parent(plan, "s")
        self.records.create(spec, plan, **more)

    def launch(
        self, number: int, *, nodes: int = 1, end: float | None = None, since: float = 0.0
    ) -> str:
        """A launch whose nodes are there ``since`` so many seconds."""
        name = f"s_nodes_{number}"
        self._create(name, nodes, {"session": {}}, child=Child("s", -number, {}))
        self.tell(name, Kind.SUBMITTED)
        self.tell(name, Kind.HELLO)
        self.tell(name, Kind.READY, address="10.0.0.1", host="n1", ports=[], end=end)
        went = self.records.get(name).event(Kind.GO)._replace(at=clock.now() - since)
        self.records.append(name, [went])
        return name

    def trial(self, number: int) -> Handle:
        """A trial that waits in the queue."""
        name = f"s_{number}"
        self._create(name, 1, {}, child=Child("s", number, {}))
        handle = self.engine.submit(self.records.get(name).plan.gang)
        self.tell(name, Kind.SUBMITTED, key=handle.key, ref=handle.ref)
        return handle

    def tell(self, name: str, kind: Kind, **data: Any) -> None:
        row = self.records.get(name)
        self.records.append(name, [row.event(kind, node=0, data=data)])

    def due(self, launch: str, **reported: bool) -> list[str]:
        """The guests that are to be on that launch."""
        orders = self.engine.orders(self.records.get(launch), 0, reported)
        return [*reported] if orders is None else [order["key"] for order in orders]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with opened_database(tmp_path / "db") as database:
        yield Pool(Records(database))


def test_a_trial_waits_for_a_launch_and_its_record_has_it_before_a_node(pool: Pool):
    trial = pool.trial(0)
    assert pool.engine.poll([trial])[trial.key] == GangStatus(
        GangState.QUEUED, "waits for nodes of s"
    )
    launch = pool.launch(1)
    assert pool.due(launch) == []
    assert pool.engine.poll([trial])[trial.key] == GangStatus(GangState.UP)
    assert pool.records.get("s_0").record.ref == launch
    assert pool.due(launch) == ["s_0.1"]


def test_a_new_server_finds_trials_where_they_are(pool: Pool):
    first, second = pool.launch(1), pool.launch(2)
    trials = [pool.trial(number) for number in range(3)]
    pool.engine.poll(trials)
    pool.engine = SessionEngine(pool.records, Wakeups(), lambda row: {})
    pool.engine.poll(trials)
    assert (pool.due(first), pool.due(second)) == (["s_0.1"], ["s_1.1"])
    assert pool.records.get("s_2").record.ref == ""


def test_the_next_trial_starts_when_the_ranks_of_one_have_ended(pool: Pool):
    launch = pool.launch(1)
    first, second = pool.trial(0), pool.trial(1)
    pool.engine.poll([first, second])
    assert pool.due(launch) == ["s_0.1"]
    pool.engine.poll([first._replace(ended=True), second])
    assert pool.due(launch, **{"s_0.1": True}) == ["s_0.1", "s_1.1"]


def test_a_launch_ends_only_while_no_trial_has_it(pool: Pool):
    launch, trial = pool.launch(1), pool.trial(0)
    pool.engine.poll([trial])
    assert not pool.engine.end_unused(launch)
    pool.engine.stop(trial)
    assert pool.engine.end_unused(launch)
    later = pool.trial(1)
    pool.engine.poll([later])
    assert pool.due(launch) == []


def test_a_launch_with_too_little_time_left_takes_no_other_trial(pool: Pool):
    launch = pool.launch(1, end=clock.now() + 30.0)
    first = pool.trial(0)
    pool.engine.poll([first])
    row = pool.records.get("s_0")
    went = row.event(Kind.GO)._replace(at=clock.now() - 60.0)
    pool.records.append("s_0", [went])
    second = pool.trial(1)
    # The first may still send its files.
    pool.engine.poll([first._replace(ended=True), second])
    assert not pool.records.get(launch).record.canceled
    pool.engine.stop(first)
    pool.engine.poll([second])
    assert pool.records.get(launch).record.canceled
    assert pool.records.get("s_1").record.ref == ""


def test_a_job_that_starts_no_second_time_takes_no_launch_that_others_have_used_up(pool: Pool):
    pool.rules = Rules()
    pool.engine.poll(())
    launch = pool.launch(1, end=clock.now() + 30.0, since=60.0)
    first = pool.trial(0)
    pool.engine.poll([first])
    assert pool.records.get("s_0").record.ref == launch  # nobody has used it
    pool.tell("s_0", Kind.GO)
    pool.engine.poll([first._replace(ended=True)])
    pool.engine.stop(first)
    second = pool.trial(1)
    pool.engine.poll([second])
    assert pool.records.get(launch).record.canceled
    assert pool.records.get("s_1").record.ref == ""


def test_a_new_server_counts_a_launch_as_used(pool: Pool):
    pool.rules = Rules()
    launch = pool.launch(1, end=clock.now() + 30.0, since=60.0)
    pool.engine.poll([pool.trial(1)])
    assert pool.records.get(launch).record.canceled
    assert pool.records.get("s_1").record.ref == ""


def test_a_job_waits_for_a_launch_of_what_it_asks_for(pool: Pool):
    pool.launch(1, nodes=2)
    job = pool.trial(0)
    waits = GangStatus(GangState.QUEUED, "waits for nodes of s")
    assert pool.engine.poll([job])[job.key] == waits
    launch = pool.launch(2)
    pool.engine.poll([job])
    assert pool.records.get("s_0").record.ref == launch


def test_a_lost_launch_loses_its_trial_and_no_other(pool: Pool):
    first, second = pool.launch(1), pool.launch(2)
    trials = [pool.trial(number) for number in range(2)]
    pool.engine.poll(trials)
    pool.tell(first, Kind.CLOSING, purpose="finish", reason=Reason.NODE_LOST)
    pool.tell(first, Kind.FINISHED, status=JobStatus.FAILED)
    statuses = pool.engine.poll(trials)
    lost = GangStatus(GangState.GONE, f"{first} has ended", reason=Reason.NODE_LOST)
    assert statuses == {"s_0.1": lost, "s_1.1": GangStatus(GangState.UP)}
    assert pool.due(second) == ["s_1.1"]
