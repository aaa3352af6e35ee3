"""What a pipeline does next: every interleaving of small graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from allranks.core.parents.pipeline import (
    Action,
    Parent,
    Rules,
    StepState,
    next_action,
    outcome,
    to_come,
)
from allranks.statuses import TERMINAL, JobStatus, Reason

RUNNING, COMPLETED = JobStatus.RUNNING, JobStatus.COMPLETED
FAILED, CANCELED = JobStatus.FAILED, JobStatus.CANCELED

GRAPHS: dict[str, dict[str, tuple[str, ...]]] = {
    "one": {"a": ()},
    "chain": {"a": (), "b": ("a",), "c": ("b",)},
    "diamond": {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")},
    "apart": {"a": (), "b": (), "c": ("a",)},
}
States = tuple[tuple[str, StepState], ...]
State = tuple[Parent, States]


def done(state: State, action: Action) -> State:
    """The record after an action."""
    parent, states = state
    if action.kind == "start":
        return parent._replace(started_at=0.0), states
    if action.kind == "submit":
        return parent, tuple(sorted({**dict(states), action.step: StepState(RUNNING)}.items()))
    change = {"close": {"closed": True}, "cancel": {"canceled": True}}[action.kind]
    changed = dict(states)[action.step]._replace(**change)
    return parent, tuple(sorted({**dict(states), action.step: changed}.items()))


def events(state: State) -> Iterator[State]:
    """What may happen by itself: a step ends, somebody cancels a step or the pipeline."""
    parent, states = state
    for name, each in states:
        if each.status in TERMINAL:
            continue
        for status in (CANCELED,) if each.canceled else (COMPLETED, FAILED, CANCELED):
            ended = each._replace(status=status)
            yield parent, tuple(sorted({**dict(states), name: ended}.items()))
    if not parent.canceled and parent.started_at is not None:
        yield parent._replace(canceled=True), states


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("graph", [*GRAPHS])
def test_every_interleaving_runs_what_it_should_once_and_in_order(graph: str, goes_on: bool):
    after = GRAPHS[graph]
    rules = Rules(after, goes_on)
    todo: list[State] = [(Parent(), ())]
    seen = set(todo)
    ends: set[Reason | None] = set()
    while todo:
        state = todo.pop()
        parent, states = state
        known = dict(states)
        for name in known:
            assert all(known[each].status is COMPLETED for each in after[name])
        action = next_action(rules, parent, known, now=1.0)
        if action is not None and action.kind == "finish":
            assert all(each.status in TERMINAL and each.closed for each in known.values())
            failed = any(each.status is not COMPLETED for each in known.values())
            if not failed and not parent.canceled:
                assert known.keys() == after.keys()
            ready = [
                name
                for name in after
                if name not in known
                and all(e in known and known[e].status is COMPLETED for e in after[name])
            ]
            # Nothing is left out that could run, unless it should stop.
            assert not ready or parent.canceled or (failed and not goes_on)
            assert action.reason == (Reason.CANCELED if parent.canceled else outcome(rules, known))
            ends.add(action.reason)
            continue
        if action is not None and action.kind == "submit" and not goes_on:
            assert all(each.status not in (FAILED, CANCELED) for each in known.values())
        following = [] if action is None else [done(state, action)]
        if action is not None and action.kind != "submit":
            # Repeated after a crash, it leaves the same record.
            assert done(following[0], action) == following[0]
        following += events(state)
        assert following, f"nothing can happen any more: {state}"
        todo += [each for each in following if each not in seen]
        seen |= {*following}
    assert ends == {Reason.DONE, Reason.RANK_EXITED, Reason.CANCELED}


def test_a_late_pipeline_cancels_its_steps_first():
    rules, parent = Rules({"a": (), "b": ("a",)}, timeout=10), Parent(started_at=0.0)
    states = {"a": StepState(RUNNING)}
    assert next_action(rules, parent, states, 9.9) is None
    assert next_action(rules, parent, states, 10.0) == Action("cancel", "a")
    states = {"a": StepState(RUNNING, canceled=True)}
    assert next_action(rules, parent, states, 11.0) is None
    states = {"a": StepState(CANCELED, canceled=True, closed=True)}
    assert next_action(rules, parent, states, 11.0) == Action("finish", reason=Reason.TIME_LIMIT)


def test_a_step_that_cannot_be_submitted_ends_the_pipeline():
    parent = Parent(started_at=0.0, refused="no such compute")
    finish = Action("finish", reason=Reason.GANG_REFUSED)
    assert next_action(Rules({"a": ()}), parent, {}, 1.0) == finish


@pytest.mark.parametrize(
    ("parent", "goes_on", "states", "names"),
    [
        (Parent(), True, {}, ["a", "b", "c", "d"]),
        (Parent(), True, {"a": COMPLETED, "b": RUNNING}, ["c", "d"]),
        (Parent(), True, {"a": COMPLETED, "b": FAILED}, ["c"]),
        (Parent(), True, {"a": CANCELED}, []),
        (Parent(), False, {"a": COMPLETED, "b": FAILED}, []),
        (Parent(canceled=True), True, {"a": RUNNING}, []),
        (Parent(refused="no"), True, {"a": RUNNING}, []),
    ],
)
def test_a_step_after_a_failed_one_does_not_come(
    parent: Parent, goes_on: bool, states: dict[str, JobStatus], names: list[str]
):
    found = {name: StepState(status) for name, status in states.items()}
    assert to_come(Rules(GRAPHS["diamond"], goes_on), parent, found) == names
