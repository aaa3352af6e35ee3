"""Whose turn it is in a session, and when a session ends."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.core.job.sessions import (
    NEEDS,
    Guest,
    end_of_launch,
    has_time_left,
    launch,
    needs,
    next_guest,
    notice,
    on_nodes_of_parent,
)
from allranks.core.lifecycle.decide import Job, Node, Then
from allranks.core.lifecycle.retry import Spent
from allranks.core.plan import Gang, Place, Plan, Rules, Task
from allranks.errors import SpecError
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import Session
from allranks.statuses import JobStatus, Purpose, Reason, RetryOn

HOUR = Session(idle_timeout=3600.0, timeout=28800.0)


def guests(*states: str) -> list[Guest]:
    return [
        Guest(f"j{number}", f"j{number}.1", 1, 0, "dev-s", state != "waits", state == "ended")
        for number, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("states", "turn"),
    [
        (("waits", "waits"), "j0"),
        (("runs", "waits"), None),
        (("ended", "waits", "waits"), "j1"),
        (("ended", "runs", "waits"), None),
        ((), None),
    ],
)
def test_guests_run_one_after_the_other(states: tuple[str, ...], turn: str | None):
    guest = next_guest(guests(*states))
    assert (guest and guest.name) == turn


@pytest.mark.parametrize(
    ("used", "now", "warned", "about", "ends"),
    [
        (0.0, 3200.0, (), None, False),
        (0.0, 3301.0, (), "idle", False),
        (0.0, 3301.0, ("idle",), None, False),
        (0.0, 3600.0, ("idle",), "idle", True),
        (3000.0, 3700.0, (), None, False),
        (28500.0, 28600.0, (), "timeout", False),
        (28500.0, 28600.0, ("timeout",), None, False),
    ],
)
def test_a_session_is_told_before_it_ends(
    used: float, now: float, warned: tuple[str, ...], about: str | None, ends: bool
):
    due = notice(HOUR, 0.0, used, now, warned)
    assert (due and due.about, bool(due and due.ends)) == (about, ends)


def test_a_short_idle_time_is_told_at_its_half():
    assert notice(Session(idle_timeout=6.0), 0.0, 0.0, 2.9, ()) is None
    assert notice(Session(idle_timeout=6.0), 0.0, 0.0, 3.1, ()) is not None
    assert notice(Session(idle_timeout=None), 0.0, 0.0, 1e9, ()) is None


def test_a_record_without_an_idle_time_ends_after_an_hour():
    session = Session.model_validate({})
    assert notice(session, 0.0, 0.0, 3600.0, ("idle",)) is not None


def test_an_idle_time_that_would_keep_the_server_busy_is_refused():
    with pytest.raises(SpecError, match="5"):
        CommandJob.parse({"command": "true", "session": {"idle_timeout": 1e-6}})


@pytest.mark.parametrize(
    ("ended", "began", "reason"),
    [
        (Reason.NODE_LOST, 100.0, Reason.NODE_LOST),
        (Reason.PREEMPTED, 100.0, Reason.PREEMPTED),
        # That somebody has ended the launch is no verdict on the job.
        (Reason.CANCELED, 100.0, Reason.NODE_LOST),
        # It had the whole time, or came late.
        (Reason.TIME_LIMIT, 102.0, Reason.TIME_LIMIT),
        (Reason.TIME_LIMIT, 150.0, Reason.PREEMPTED),
    ],
)
def test_the_end_of_a_launch_is_no_fault_of_the_job_on_it(
    ended: Reason, began: float, reason: Reason
):
    job = Job((), JobStatus.FINALIZING, then=Then(Purpose.FINISH, ended), went_at=100.0)
    end = end_of_launch("s_nodes_1", job, began, 200.0)
    assert end is not None
    assert (end.why, end.reason) == ("s_nodes_1 ends", reason)
    assert end_of_launch("s_nodes_1", Job((), JobStatus.RUNNING), began, 200.0) is None
    gone = end_of_launch("s_nodes_1", None, began, 200.0)
    assert gone is not None
    assert gone.reason is Reason.NODE_LOST


def test_a_launch_lasts_until_its_first_node_ends():
    nodes = [Node(place=Place("10.0.0.1", "n1", end=end)) for end in (500.0, 400.0, None)]
    again = Rules(max_attempts=3)
    assert has_time_left(Job(tuple(nodes)), again, Spent(), 100.0, 300.0)
    assert not has_time_left(Job(tuple(nodes)), again, Spent(), 100.0, 301.0)
    assert has_time_left(Job((Node(),)), again, Spent(), 1e9, 0.0)


@pytest.mark.parametrize(
    ("rules", "spent", "now", "has"),
    [
        # Nine tenths of its 1,000 s, or the job's own limit.
        (Rules(), 0, 200.0, True),
        (Rules(), 0, 201.0, False),
        (Rules(timeout=300.0), 0, 800.0, True),
        (Rules(timeout=300.0), 0, 801.0, False),
        (Rules(max_attempts=3, on=("user",)), 0, 201.0, False),
        (Rules(max_attempts=3, budgets={RetryOn.PREEMPTED: 1}), 0, 1099.0, True),
        (Rules(max_attempts=3, budgets={RetryOn.PREEMPTED: 1}), 1, 201.0, False),
    ],
)
def test_a_job_that_starts_no_second_time_gets_what_a_launch_of_its_own_would_give(
    rules: Rules, spent: int, now: float, has: bool
):
    job = Job((Node(place=Place("10.0.0.1", "n1", end=1100.0)),), went_at=100.0)
    assert has_time_left(job, rules, Spent(preempted=spent), 1.0, now) == has


def test_a_launch_asks_for_what_the_job_on_it_asks_for():
    gang = Gang("p_train.1", 2, ("agent",), gpus=4, options={"time": "60"}, ranks=8)
    own = Plan(gang, Task("p_train", "e", "c"), Rules(2), "slurm", compute="s")
    guest = on_nodes_of_parent(own, "p")
    made = launch("p_nodes_1", guest, ("agent",), "/jobs/p_nodes_1")
    assert (made.engine, made.gang.nodes, made.gang.options) == ("slurm", 2, {"time": "60"})
    assert (made.task.parent, made.gang.key) == ("p", "p_nodes_1.1")
    assert needs(own) == needs(guest) == needs(made)
    # One of a server that did not keep its needs yet.
    options = {key: value for key, value in guest.gang.options.items() if key != NEEDS}
    assert needs(guest._replace(gang=guest.gang._replace(options=options))) == needs(own)


@pytest.mark.parametrize(
    "other",
    [{"nodes": 1}, {"gpus": 8}, {"options": {"time": "90"}}, {"processes": 2}, {"grace": 60.0}],
)
def test_a_job_that_asks_for_something_else_needs_another_launch(other: dict[str, Any]):
    gang = Gang("a.1", 2, (), gpus=4, options={"time": "60"})
    plan = Plan(gang, Task("a", "e", "c"), Rules(), "slurm", compute="s")
    assert needs(plan) != needs(plan._replace(gang=gang._replace(**other)))
    assert needs(plan) != needs(plan._replace(compute="t"))
    assert needs(plan) == needs(plan._replace(gang=gang._replace(key="b.1")))
