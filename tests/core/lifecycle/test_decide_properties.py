"""What holds of ``fold`` and ``decide`` whatever is told, by whom, and in whatever order."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allranks.core.attempt_end import Failure
from allranks.core.lifecycle import retry
from allranks.core.lifecycle.decide import Clock, Effect, Job, decide, new, outcome, waits
from allranks.core.lifecycle.fold import fold
from allranks.core.packing import pack, unpack
from allranks.core.plan import Rules
from allranks.events import FROM_AGENTS, Event, Kind
from allranks.statuses import TERMINAL, VERDICTS, GangState, JobStatus, NodeState, Reason, RetryOn
from tests.core.model import order

TIMES = st.sampled_from([0.0, 1.0, 5.0, 40.0, 200.0])
WHICH = st.sampled_from([0, 1, 2])
REASONS = st.sampled_from(list(Reason))


def data_of(kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
    if kind is Kind.READY:
        place = {"address": st.just("a"), "host": st.just("h"), "ports": st.just([1])}
        return st.fixed_dictionaries(place)
    if kind in (Kind.ENDED, Kind.HELD):
        optional = {
            "passing": st.booleans(),
            "failed_at": TIMES,
            "code": st.integers(0, 255),
            "message": st.text(max_size=3),
        }
        until = {"until": TIMES} if kind is Kind.HELD else {}
        return st.fixed_dictionaries({"reason": REASONS, **until}, optional=optional)
    if kind is Kind.TAKEN:
        return st.fixed_dictionaries({"reason": REASONS}, optional={"failed_at": TIMES})
    return st.just({})


@st.composite
def from_agents(draw: st.DrawFn) -> Event:
    """Honest or not: any node, launch, attempt and number, also those that do not exist."""
    kind = draw(st.sampled_from(sorted(FROM_AGENTS)))
    return Event(
        kind,
        draw(TIMES),
        launch=draw(st.sampled_from([1, 1, 1, 2, 0])),
        attempt=draw(st.sampled_from([1, 1, 1, 2, 0])),
        node=draw(st.sampled_from([0, 1, 0, 1, 0, 1, 2, -1, None])),
        seq=draw(st.integers(1, 9)),
        data=draw(data_of(kind)),
    )


@st.composite
def from_outside(draw: st.DrawFn) -> Event:
    kind = draw(
        st.sampled_from([Kind.SEEN, Kind.SEEN, Kind.LOST, Kind.CANCEL_ASKED, Kind.PREEMPT_ASKED])
    )
    node = draw(st.sampled_from([0, 1])) if kind is Kind.LOST else None
    node = draw(st.sampled_from([None, 0, 1])) if kind is Kind.PREEMPT_ASKED else node
    seen = {"state": draw(st.sampled_from(list(GangState))), "why": draw(st.text(max_size=3))}
    seen |= {"reason": draw(st.sampled_from([None, Reason.SETUP_FAILED]))}
    data = seen if kind is Kind.SEEN else {"why": "silent"} if kind is Kind.LOST else {}
    return Event(kind, draw(TIMES), draw(WHICH), draw(WHICH), node, data=data)


CLOCKS = st.builds(
    Clock,
    now=st.sampled_from([0.0, 10.0, 100.0, 1000.0]),
    silent=st.frozensets(st.sampled_from([0, 1])),
    since=st.sampled_from([0.0, 90.0]),
    missed=st.booleans(),
    hung=st.sampled_from([None, None, None, Failure(Reason.HANG, 1, 1, message="stuck")]),
)
RULES = st.builds(
    Rules,
    nodes=st.just(2),
    max_attempts=st.sampled_from([1, 2, 3]),
    on=st.sampled_from([("user",), (), Rules().on]),
    budgets=st.sampled_from([{}, {"preempted": 1, "setup": 0, "node_lost": 2}]),
    timeout=st.sampled_from([None, 60.0]),
)
STORIES = st.lists(st.one_of(from_agents(), from_agents(), from_outside(), CLOCKS), max_size=40)


def take(job: Job, rules: Rules, clock: Clock) -> Job:
    """The next step, recorded."""
    step = decide(job, rules, clock)
    if step is None:
        return job
    data = dict(step.data)
    if step.event is Kind.FINISHED:
        data = {"status": VERDICTS[outcome(job).reason].outcome}
    return fold(job, Event(step.event, clock.now, job.launch, job.attempt, step.node, data=data))


def told(job: Job, rules: Rules, story: list[Event | Clock]) -> list[Job]:
    """The job after each of the things that happened."""
    found = [job]
    for each in story:
        job = take(job, rules, each) if isinstance(each, Clock) else fold(job, each)
        found.append(job)
    return found


@given(RULES, STORIES)
@settings(max_examples=100)
def test_whatever_is_told_fold_decide_and_order_have_an_answer(
    rules: Rules, story: list[Event | Clock]
):
    for job in told(new(2), rules, story):
        decide(job, rules, Clock(now=1000.0))
        for node in (0, 1):
            answer = order(job, node, job.launch, job.attempt)
            assert answer["do"] in ("go", "stop", "prepare", "leave", "wait")
            gone = job.nodes[node].left or job.nodes[node].state is NodeState.LOST
            assert answer["do"] == "leave" or not gone
            assert order(job, node, job.launch - 1, 1) == {"do": "leave"}


@given(RULES, STORIES)
@settings(max_examples=100)
@pytest.mark.medium
def test_the_end_is_the_end(rules: Rules, story: list[Event | Clock]):
    jobs = told(new(2), rules, story)
    for before, after in pairwise(jobs):
        if before.status in TERMINAL:
            assert after is before
        if before.canceled:
            assert after.canceled
            assert after.attempt == before.attempt
        assert after.launch in (before.launch, before.launch + 1)
        assert after.spent.user <= max(1, rules.max_attempts - 1)
        for cause in RetryOn:
            assert after.spent.on(cause) <= retry.left(rules, retry.Spent(), cause)


@given(RULES, STORIES, st.lists(CLOCKS, min_size=1, max_size=4))
@settings(max_examples=100)
@pytest.mark.medium
def test_no_time_makes_a_step_of_a_waiting_job_due(
    rules: Rules, story: list[Event | Clock], later: list[Clock]
):
    for job in told(new(2), rules, story):
        if waits(job) and decide(job, rules, Clock(now=0.0)) is None:
            assert [decide(job, rules, each) for each in later] == [None] * len(later)


@given(RULES, STORIES, st.one_of(from_agents(), from_outside()))
@settings(max_examples=100)
@pytest.mark.medium
def test_said_twice_is_said_once(rules: Rules, story: list[Event | Clock], event: Event):
    once = fold(told(new(2), rules, story)[-1], event)
    assert fold(once, event) == once


@given(RULES, STORIES, st.lists(from_agents(), max_size=6))
@settings(max_examples=60)
def test_a_batch_resent_whole_changes_nothing(
    rules: Rules, story: list[Event | Clock], batch: list[Event]
):
    """An agent's outbox goes in order of its numbers; an answer that was lost makes it go again."""
    job = told(new(2), rules, story)[-1]
    mine = sorted((e._replace(node=0, launch=job.launch) for e in batch), key=lambda e: e.seq)
    once = told(job, rules, [*mine])[-1]
    assert told(once, rules, [*mine])[-1] == once


# Both said good-bye without a word of how it ended: agents that leave have their time to be gone.
_LEFT = [Event(Kind.BYE, 0.0, 1, 1, node, None, 1, {}) for node in (0, 1)]


@given(RULES, STORIES)
@example(Rules(nodes=2, max_attempts=1, on=("user",)), _LEFT)
@settings(max_examples=100)
def test_when_the_world_stops_so_does_decide(rules: Rules, story: list[Event | Clock]):
    """Nothing more is heard, the engine says GONE when asked to stop: the steps come to an end, and
    the job to its own or to one more submission."""
    job = told(new(2), rules, story)[-1]
    clock = Clock(now=1e6, silent=frozenset({0, 1}))
    for _ in range(20):
        # After its back-off, too, and after what it still waits for at that moment.
        clock = clock._replace(now=max(clock.now, job.not_before))
        step = decide(job, rules, clock)
        if step is None:
            clock = clock._replace(now=clock.now + 1e5)
            step = decide(job, rules, clock)
        if step is None or step.effect is Effect.SUBMIT:
            break
        job = take(job, rules, clock)
        if step.effect is Effect.STOP:
            gone = {"state": "gone", "why": ""}
            job = fold(job, Event(Kind.SEEN, clock.now, job.launch, job.attempt, data=gone))
    else:
        raise AssertionError(job)
    waiting = job.gang is not GangState.GONE and job.status is JobStatus.QUEUED
    up = job.status in (JobStatus.PROVISIONING,) and job.up_at is None
    assert job.status in TERMINAL or step is not None or waiting or up


@given(RULES, STORIES)
@settings(max_examples=60)
def test_packed_and_loaded_is_the_same(rules: Rules, story: list[Event | Clock]):
    for job in told(new(2), rules, story):
        assert unpack(Job, json.loads(json.dumps(pack(job)))) == job
