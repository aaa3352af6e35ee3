"""The state machine keeps its promises in every state, and the check would notice if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allranks.core.lifecycle import decide as policy
from allranks.core.lifecycle import retry
from allranks.core.lifecycle.decide import Clock, Job, Step, decide
from allranks.core.lifecycle.fold import fold
from allranks.core.plan import Rules
from allranks.events import Event, Kind
from allranks.statuses import TERMINAL, GangState, JobStatus, NodeState, Reason, RetryOn
from tests.core.model import Broken, Model, explore, order

QUIET: dict[str, Any] = {"salvage": False, "twice": False, "backlog": 1}
CALM: dict[str, Any] = {**QUIET, "crashes": False, "cuts": False, "timeout": False}
LOSSES = ("node_lost", "preempted")


FEW = {"node_lost": 1, "preempted": 0, "hang": 0, "setup": 1}
NONE = dict.fromkeys(FEW, 0)


@pytest.fixture(autouse=True)
def one_race(monkeypatch: pytest.MonkeyPatch) -> None:
    port = retry.BUDGETS[RetryOn.PORT]._replace(restarts=1)
    monkeypatch.setattr(retry, "BUDGETS", {**retry.BUDGETS, RetryOn.PORT: port})


def rules(nodes: int, attempts: int = 2, budgets: dict[str, int] = FEW, **more: Any) -> Rules:
    return Rules(nodes=nodes, max_attempts=attempts, budgets=budgets, **more)


def one(**changes: Any) -> Model:
    return Model(**{"nodes": 1, "rules": rules(1), **CALM, **changes})


def two(**changes: Any) -> Model:
    return Model(**{"rules": rules(2), **CALM, **changes})


@pytest.mark.medium
def test_one_node_two_attempts():
    assert explore(one()).endings == 3


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cuts", "timeout", "services", "races", "setups"])
@pytest.mark.end_to_end
def test_one_node_and_a_fault(fault: str):
    on = (*LOSSES, "setup")
    assert explore(one(rules=rules(1, on=on), **{fault: True})).endings == 3


@pytest.mark.slow
def test_one_node_that_hangs():
    few = {**NONE, "hang": 1, "node_lost": 1}
    assert explore(one(rules=rules(1, 3, few), hangs=True)).endings == 3


@pytest.mark.slow
def test_one_node_and_preemptions_that_are_asked_for():
    few = {**NONE, "preempted": 2}
    assert explore(one(rules=rules(1, 3, few), preempts=True)).endings == 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_nodes_two_attempts():
    """The second by a regroup, or by the relaunch that it becomes."""
    assert explore(two(rules=rules(2, budgets=NONE))).endings == 3


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_nodes_and_a_loss():
    assert explore(two(rules=rules(2, on=LOSSES))).endings == 3


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_node_with_crashes_cuts_and_a_time_limit():
    assert explore(one(**{**QUIET, "crashes": True, "cuts": True, "timeout": True})).endings == 3


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_node_and_every_fault_at_once():
    every = Model(nodes=1, rules=rules(1), services=True, backlog=2)
    assert explore(every).endings == 3


# ---------------------------------------------------------------- the check has teeth

Decide = Callable[[Job, Rules, Clock], Step | None]


def go_on_any_ready(job: Job, rules: Rules, clock: Clock) -> Step | None:
    any_ready = any(n.state is NodeState.READY for n in job.nodes)
    if job.status is JobStatus.PREPARING and any_ready and not job.canceled:
        return Step(Kind.GO)
    return decide(job, rules, clock)


def end_without_gone(job: Job, rules: Rules, clock: Clock) -> Step | None:
    if job.status is JobStatus.FINALIZING and job.then and job.then.purpose == "finish":
        return Step(Kind.FINISHED)
    return decide(job, rules, clock)


def deaf_to_cancel_in_a_relaunch(job: Job, rules: Rules, clock: Clock) -> Step | None:
    again = job.then is not None and job.then.purpose != "finish"
    return decide(job._replace(canceled=False) if again else job, rules, clock)


def submit_after_cancel(job: Job, rules: Rules, clock: Clock) -> Step | None:
    started = job.status is not JobStatus.NOT_STARTED
    return decide(job if started else job._replace(canceled=False), rules, clock)


def believe_the_engine_first(job: Job, rules: Rules, clock: Clock) -> Step | None:
    live = job.status not in TERMINAL | {JobStatus.FINALIZING, JobStatus.NOT_STARTED}
    if job.gang is GangState.GONE and live and not job.spent.node_lost:
        return Step(Kind.CLOSING, data={"purpose": "relaunch", "reason": Reason.NODE_LOST})
    return decide(job, rules, clock)


def one_attempt_too_many(job: Job, rules: Rules, clock: Clock) -> Step | None:
    return decide(job, rules._replace(max_attempts=rules.max_attempts + 1), clock)


def one_attempt_too_few(job: Job, rules: Rules, clock: Clock) -> Step | None:
    return decide(job, rules._replace(max_attempts=1), clock)


def done_when_one_is(job: Job, rules: Rules, clock: Clock) -> Step | None:
    live = job.status not in TERMINAL | {JobStatus.FINALIZING}
    if live and any(n.reason is Reason.DONE for n in job.nodes) and not job.canceled:
        return Step(Kind.CLOSING, data={"purpose": "finish", "reason": Reason.DONE})
    return decide(job, rules, clock)


def regroup_while_ranks_run(job: Job, rules: Rules, clock: Clock) -> Step | None:
    if job.then is not None and job.then.purpose == "regroup" and not job.canceled:
        return Step(Kind.REGROUPED)
    return decide(job, rules, clock)


def wait_for_ever_for_a_hello(job: Job, rules: Rules, clock: Clock) -> Step | None:
    return decide(job, rules, clock._replace(hello=1e12))


def wait_for_ever_for_the_silent(job: Job, rules: Rules, clock: Clock) -> Step | None:
    return decide(job, rules, clock._replace(silent=frozenset()))


@pytest.mark.parametrize(
    ("mutant", "promise"),
    [
        (end_without_gone, "the end waits for GONE or BYE"),
        (deaf_to_cancel_in_a_relaunch, "no attempt after a cancel"),
        (submit_after_cancel, "nothing is submitted after a cancel"),
        (believe_the_engine_first, "all nodes done is Completed"),
        (one_attempt_too_many, "max_attempts holds"),
        (one_attempt_too_few, "no attempt of the user's is withheld"),
        (regroup_while_ranks_run, "a regroup needs all its nodes"),
    ],
)
def test_a_wrong_decision_is_noticed(mutant: Decide, promise: str):
    with pytest.raises(Broken, match=promise):
        explore(one(decide=mutant))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "promise"),
    [
        (go_on_any_ready, "GO only to a full gang"),
        (done_when_one_is, "Completed only when every worker is done"),
    ],
)
def test_a_wrong_decision_about_two_nodes_is_noticed(mutant: Decide, promise: str):
    with pytest.raises(Broken, match=promise):
        explore(two(rules=Rules(nodes=2), decide=mutant))


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", [wait_for_ever_for_a_hello, wait_for_ever_for_the_silent])
def test_waiting_for_ever_for_one_of_two_nodes_is_noticed(mutant: Decide):
    with pytest.raises(Broken, match="no state is stuck"):
        explore(two(rules=Rules(nodes=2), decide=mutant))


def test_no_fence_is_noticed():
    def unfenced(job: Job, node: int, launch: int, attempt: int) -> dict[str, Any]:
        return order(job, node, job.launch, attempt)

    with pytest.raises(Broken, match="old launch is told to leave"):
        explore(one(order=unfenced))


def test_a_lost_node_that_may_stay_is_noticed():
    def kind(job: Job, node: int, launch: int, attempt: int) -> dict[str, Any]:
        told = order(job, node, launch, attempt)
        return {"do": "wait"} if job.nodes[node].state is NodeState.LOST else told

    with pytest.raises(Broken, match="told to leave"):
        explore(one(order=kind))


def test_losses_that_eat_attempts_are_noticed():
    def eating(job: Job, event: Event) -> Job:
        after = fold(job, event)
        if after.spent.node_lost > job.spent.node_lost:
            return after._replace(spent=job.spent.after(RetryOn.USER))
        return after

    with pytest.raises(Broken, match="not eat"):
        explore(one(folds=eating))


def test_a_terminal_state_that_is_left_is_noticed():
    def reviving(job: Job, event: Event) -> Job:
        if event.kind is Kind.CANCEL_ASKED:
            return job._replace(canceled=True)
        return fold(job, event)

    with pytest.raises(Broken, match="terminal is never left"):
        explore(one(folds=reviving))


def test_hearing_twice_is_noticed():
    def forgetful(job: Job, event: Event) -> Job:
        after = fold(job, event)
        if event.kind is Kind.HELLO:
            return after._replace(spent=after.spent.after(RetryOn.USER))
        return after

    with pytest.raises(Broken, match=r"said twice|max_attempts|withheld|counted once|its limit"):
        explore(one(folds=forgetful, twice=True))


def test_deafness_to_a_bye_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """As it was: who left without a word on how it ended was neither lost nor failed."""

    def deaf(node: policy.Node) -> Reason | None:
        lost = node.reason is None and node.state is NodeState.LOST
        return Reason.NODE_LOST if lost else None if node.reason is Reason.DONE else node.reason

    monkeypatch.setattr(policy, "_cause", deaf)
    job = policy.new(2)._replace(status=JobStatus.RUNNING, gang=GangState.UP)
    job = fold(job, Event(Kind.BYE, 1.0, node=0, seq=1))
    assert decide(job, Rules(nodes=2), Clock(now=1.0)) is None
