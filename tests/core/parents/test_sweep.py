"""What a sweep does next: every interleaving of small sweeps, and hand-written scenes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from allranks.core.parents.sweep import (
    Parent,
    Rules,
    Step,
    Trial,
    best,
    next_step,
    rank,
    unprepared,
)
from allranks.spec.sweep.early_termination import Bandit
from allranks.statuses import TERMINAL, JobStatus, Reason

RUNNING, COMPLETED = JobStatus.RUNNING, JobStatus.COMPLETED
FAILED, CANCELED = JobStatus.FAILED, JobStatus.CANCELED

State = tuple[Parent, tuple[Trial, ...]]


def taken(state: State, step: Step) -> State:
    """The record after a step."""
    parent, trials = state
    if step.kind == "start":
        return parent._replace(started_at=0.0), trials
    if step.kind == "draw":
        return parent, (*trials, Trial(step.number, RUNNING))
    change = {
        "close": {"closed": True},
        "judge": {"judged": step.interval, "canceled": bool(step.why)},
        "cancel": {"canceled": True},
    }[step.kind]
    found = tuple(t._replace(**change) if t.number == step.number else t for t in trials)
    return parent, found


def events(state: State, setups: bool) -> Iterator[State]:
    """What may happen by itself: a trial reports or ends, somebody cancels the sweep; with
    ``setups``, a trial is prepared or cannot be."""
    parent, trials = state
    for index, trial in enumerate(trials):
        if trial.status in TERMINAL:
            continue
        if setups and trial.prepared is None and not trial.canceled:
            for change in ({"prepared": True}, {"status": FAILED, "prepared": False}):
                found = trial._replace(**change)
                yield parent, (*trials[:index], found, *trials[index + 1 :])
            continue
        ends = (CANCELED,) if trial.canceled else (COMPLETED, FAILED)
        for status in ends:
            value = trial.reports[-1] if trial.reports else None
            ended = trial._replace(status=status, value=value)
            yield parent, (*trials[:index], ended, *trials[index + 1 :])
        if len(trial.reports) < 2 and not trial.canceled:
            reports = (*trial.reports, float(trial.number))
            reported = trial._replace(reports=reports)
            yield parent, (*trials[:index], reported, *trials[index + 1 :])
    if not parent.canceled and parent.started_at is not None:
        yield parent._replace(canceled=True), trials


@pytest.mark.medium
@pytest.mark.parametrize("policy", [None, Bandit(slack_amount=0.5)])
@pytest.mark.parametrize(("trials", "concurrent"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_every_interleaving_ends_with_the_right_trials(trials, concurrent, policy):
    rules = Rules(trials, concurrent, "maximize", policy=policy)
    todo: list[State] = [(Parent(), ())]
    seen = set(todo)
    finished = 0
    while todo:
        state = todo.pop()
        parent, of_sweep = state
        step = next_step(rules, parent, of_sweep, now=1.0)
        live = [each for each in of_sweep if each.status not in TERMINAL]
        assert len(live) <= concurrent
        assert [each.number for each in of_sweep] == list(range(len(of_sweep)))
        assert len(of_sweep) <= trials
        if step is not None and step.kind == "finish":
            assert not live
            assert all(each.closed for each in of_sweep)
            ran_all = len(of_sweep) == trials
            good = best("maximize", of_sweep) is not None
            expected = Reason.DONE if good else Reason.RANK_EXITED
            if unprepared(of_sweep):
                expected = Reason.SETUP_FAILED
            assert step.reason == (Reason.CANCELED if parent.canceled else expected)
            assert parent.canceled or ran_all or unprepared(of_sweep)
            finished += 1
            continue
        following = [] if step is None else [taken(state, step)]
        if step is not None and step.kind not in ("draw",):
            # Repeated after a crash, it leaves the same record.
            assert taken(following[0], step) == following[0]
        following += events(state, setups=policy is None)
        assert following, f"nothing can happen any more: {state}"
        todo += [each for each in following if each not in seen]
        seen |= {*following}
    assert finished


def test_a_sweep_that_is_late_cancels_its_trials_first():
    rules = Rules(4, 2, "minimize", timeout=10.0)
    parent, trials = Parent(started_at=5.0), [Trial(0, RUNNING), Trial(1, RUNNING, canceled=True)]
    assert next_step(rules, parent, trials, now=14.9) is None
    assert next_step(rules, parent, trials, now=15.0) == Step("cancel", 0)
    ended = [each._replace(status=CANCELED, closed=True) for each in trials]
    assert next_step(rules, parent, ended, now=15.0) == Step("finish", reason=Reason.TIME_LIMIT)


def test_a_trial_that_cannot_be_submitted_ends_the_sweep():
    parent = Parent(started_at=0.0, refused="the compute is gone")
    step = next_step(Rules(4, 2, "minimize"), parent, [Trial(0, COMPLETED, closed=True)], 1.0)
    assert step == Step("finish", reason=Reason.GANG_REFUSED)


def test_the_first_trial_that_cannot_be_prepared_ends_the_sweep():
    rules, parent = Rules(12, 2, "minimize"), Parent(started_at=0.0)
    bad = Trial(0, FAILED, closed=True, prepared=False)
    assert next_step(rules, parent, [bad, Trial(1, RUNNING)], 1.0) == Step("cancel", 1)
    finish = Step("finish", reason=Reason.SETUP_FAILED)
    assert next_step(rules, parent, [bad, Trial(1, CANCELED, closed=True)], 1.0) == finish


def test_a_trial_that_one_node_cannot_prepare_is_only_a_failed_trial():
    good = Trial(0, RUNNING, prepared=True)
    bad = Trial(1, FAILED, closed=True, prepared=False)
    assert unprepared([good, bad]) is None
    step = next_step(Rules(12, 2, "minimize"), Parent(started_at=0.0), [good, bad], 1.0)
    assert step == Step("draw", 2)


def test_a_deleted_trial_does_not_come_back():
    trials = [Trial(0, COMPLETED, closed=True), Trial(2, COMPLETED, closed=True)]
    step = next_step(Rules(4, 1, "minimize"), Parent(started_at=0.0), trials, 1.0)
    assert step == Step("draw", 3)


def test_trials_that_a_restart_replaces_come_first():
    trials = [Trial(number, COMPLETED, closed=True) for number in (1, 2, 5)]
    parent, drawn = Parent(started_at=0.0, again=frozenset({0, 3})), []
    while (step := next_step(Rules(8, 8, "minimize"), parent, trials, 1.0)) is not None:
        drawn.append(step.number)
        trials.append(Trial(step.number, RUNNING))
    assert drawn == [0, 3, 6, 7], "4 was deleted"


def test_failed_trials_do_not_count_and_the_earlier_of_equals_is_the_best():
    trials = [
        Trial(0, FAILED, value=9.0),
        Trial(1, COMPLETED, value=3.0),
        Trial(2, CANCELED, value=4.0),
        Trial(3, COMPLETED, value=4.0),
        Trial(4, COMPLETED),
    ]
    assert [each.number for each in rank("maximize", trials)] == [2, 3, 1]
    assert best("minimize", trials) == trials[1]
    assert best("minimize", trials[4:]) is None
