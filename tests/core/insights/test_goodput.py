"""Every second of a job is one thing, and what a later attempt did anew was lost."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.insights.checkpoint_interval import advise, held_up, optimum, waste
from allranks.core.insights.goodput import Activity, Trail, goodput
from allranks.events import Event, Kind


def said(kind, at, attempt=1, **data):
    return Event(kind, at, attempt, attempt, data=data)


def begun(at, attempt=1):
    """Submitted, up two seconds later, its ranks three more."""
    return [
        said(Kind.SUBMITTED, at, attempt),
        said(Kind.SEEN, at + 2, attempt, state="up"),
        said(Kind.HELLO, at + 2.5, attempt),
        said(Kind.GO, at + 5, attempt),
    ]


DONE = {"purpose": "finish", "reason": "DONE"}
GOOD = [
    said(Kind.CREATED, 0),
    *begun(1),
    said(Kind.CLOSING, 106, **DONE),
    said(Kind.FINISHED, 107, status="Completed"),
]
# Its node was last heard at 50, which was noticed at 58; the next attempt goes at 70.
LOST_NODE = [
    said(Kind.CREATED, 0),
    *begun(1),
    said(Kind.LOST, 58, heard=50),
    said(Kind.CLOSING, 58.1, purpose="relaunch", reason="NODE_LOST"),
    said(Kind.RELAUNCHED, 59),
    *begun(65, 2),
    said(Kind.CLOSING, 170, 2, **DONE),
    said(Kind.FINISHED, 171, 2, status="Completed"),
]


def parts(found):
    return {str(each): round(found.seconds(each), 6) for each in Activity if found.seconds(each)}


def trail(attempt, first, begin, count, name="loss", pace=1.0, rank=0):
    steps = tuple((first + n, begin + pace * (n + 1)) for n in range(count))
    return Trail(attempt, name, rank, steps)


def test_a_gang_that_found_no_server_made_no_attempt():
    missed = [
        said(Kind.CREATED, 0),
        said(Kind.SUBMITTED, 1),
        said(Kind.SEEN, 50, state="gone", reason="SETUP_FAILED"),
        said(Kind.CLOSING, 50.1, purpose="resubmit", reason="SETUP_FAILED"),
        said(Kind.STOPPING, 50.2),
        said(Kind.RELAUNCHED, 50.3),
        *begun(51),
        said(Kind.CLOSING, 156, **DONE),
        said(Kind.FINISHED, 157, status="Completed"),
    ]
    found = goodput(missed, 157)
    assert parts(found) == {"queueing": 53, "preparing": 3, "computing": 100, "finalizing": 1}
    assert {span.attempt for span in found.spans} == {1}
    assert found.failures == 0


def test_a_job_that_went_well():
    found = goodput(GOOD, now=1000)
    assert parts(found) == {"queueing": 3, "preparing": 3, "computing": 100, "finalizing": 1}
    assert found.share == pytest.approx(100 / 104)
    assert (found.failures, found.unknown) == (0, False)


def test_one_that_still_runs_is_told_until_now():
    found = goodput(GOOD[:-2], now=56)
    assert parts(found) == {"queueing": 3, "preparing": 3, "computing": 50}
    assert goodput(GOOD[:2], now=500).share is None
    assert goodput([], now=1) == goodput((), now=2)


def test_what_was_done_anew_was_lost_and_its_noticing_is_restarting():
    # 44 steps till 50, of which the next attempt does those from 30 on anew: step 29 came at 36.
    found = goodput(LOST_NODE, 1000, [trail(1, 0, 6, 44), trail(2, 30, 70, 100)])
    assert parts(found) == {
        "queueing": 3 + 2,  # waiting for other nodes is a queue's time, too
        "preparing": 3,
        "computing": 30 + 100,
        "lost": 14,
        "restarting": 15 + 3,
        "finalizing": 1,
    }
    assert (found.failures, found.unknown) == (1, False)


def test_the_time_of_a_hang_is_not_computing():
    """It stood still from 50 on, which was noticed at 90."""
    hung = {"reason": "HANG", "at": 50}
    events = [
        *GOOD[:-2],
        said(Kind.CLOSING, 90, purpose="regroup", reason="HANG", hung=hung),
        said(Kind.REGROUPED, 91),
        said(Kind.GO, 92, 2),
        said(Kind.CLOSING, 192, 2, **DONE),
        said(Kind.FINISHED, 193, 2, status="Completed"),
    ]
    found = goodput(events, 1000, [trail(1, 0, 6, 44), trail(2, 44, 92, 100)])
    assert parts(found) == {
        "queueing": 3,
        "preparing": 3,
        "computing": 44 + 100,
        "hang": 40,
        "restarting": 2,
        "finalizing": 1,
    }


def test_the_time_of_a_last_hang_is_not_finalizing():
    hung = {"reason": "HANG", "at": 50}
    closing = said(Kind.CLOSING, 90, purpose="finish", reason="HANG", hung=hung)
    found = goodput([*GOOD[:-2], closing, said(Kind.FINISHED, 91, status="Failed")], 1000)
    assert [found.seconds(one) for one in (Activity.HANG, Activity.FINALIZING)] == [40, 1]


# What is told more often says it better.
OFTEN = [trail(1, 0, 6, 44), trail(2, 30, 70, 100)]


@pytest.mark.parametrize(
    ("trails", "lost", "unknown"),
    [
        ([], 0, True),
        ([trail(1, 0, 6, 44)], 0, True),  # the second told nothing
        ([trail(1, 0, 6, 44), trail(2, 0, 70, 100)], 44, False),  # from the start
        ([trail(1, 0, 6, 44), trail(2, 44, 70, 100)], 0, False),  # nothing at all
        ([trail(1, 0, 6, 44), trail(2, 30, 70, 99, "acc")], 0, True),  # not the same metric
        ([trail(1, 0, 6, 44), trail(2, 30, 70, 99, rank=1)], 0, True),
        ([*OFTEN, trail(1, 0, 6, 4, "epoch", 10), trail(2, 2, 70, 9, "epoch")], 14, False),
        # Within an epoch that counts anew nobody knows.
        ([Trail(1, "n", 0, ((8, 7), (9, 8), (0, 9))), Trail(2, "n", 0, ((9, 71),))], 0, True),
    ],
)
def test_what_is_known_of_lost_work(trails, lost, unknown):
    found = goodput(LOST_NODE, 1000, trails)
    assert (found.seconds(Activity.LOST), found.unknown) == (lost, unknown)


def test_two_failures_and_the_second_steps_further_back():
    events = [
        *LOST_NODE[:-2],
        said(Kind.ENDED, 121, 2, reason="RANK_EXITED", failed_at=120),
        said(Kind.CLOSING, 121.5, 2, purpose="regroup", reason="RANK_EXITED"),
        said(Kind.REGROUPED, 122, 2),
        said(Kind.GO, 123, 3),
        said(Kind.CLOSING, 223, 3, **DONE),
        said(Kind.FINISHED, 224, 3),
    ]
    trails = [trail(1, 0, 6, 44), trail(2, 30, 70, 50), trail(3, 10, 123, 100)]
    found = goodput(events, 1000, trails)
    assert found.failures == 2
    assert found.seconds(Activity.LOST) == pytest.approx(34 + 50)
    assert found.seconds(Activity.RESTARTING) == pytest.approx(15 + 3 + 3)


def test_what_an_engine_says_after_the_start_changes_nothing_and_a_requeue_is_a_queue():
    late = [*GOOD[:5], said(Kind.SEEN, 50, state="up"), *GOOD[5:]]
    assert parts(goodput(late, 0)) == parts(goodput(GOOD, 0))
    again = [*GOOD[:4], said(Kind.SEEN, 4, state="queued"), said(Kind.SEEN, 5, state="up")]
    assert parts(goodput([*again, *GOOD[4:]], 0))["queueing"] == 3 + 1


times = st.floats(0, 1e4)
kinds = st.sampled_from([kind for kind in Kind if kind is not Kind.CREATED])
reasons = st.sampled_from(["DONE", "NODE_LOST", "RANK_EXITED", "CANCELED", "PEER_FAILED"])
purposes = st.sampled_from(["finish", "relaunch", "regroup"])
states = st.sampled_from(["queued", "provisioning", "up", "gone", "unknown"])
datas = st.fixed_dictionaries(
    {"reason": reasons, "purpose": purposes, "state": states},
    optional={"failed_at": times, "heard": times},
)
anything = st.builds(said, kinds, times, st.integers(1, 3)).flatmap(
    lambda event: datas.map(lambda data: event._replace(data=data))
)
steps = st.lists(st.tuples(st.integers(0, 50), times), max_size=6).map(tuple)
some = st.lists(st.builds(Trail, st.integers(1, 3), st.just("loss"), st.just(0), steps))


@given(times, st.lists(anything, max_size=20), times, some)
@pytest.mark.medium
def test_whatever_is_said_and_when_every_second_is_one_thing(created, events, now, trails):
    found = goodput([said(Kind.CREATED, created), *events], now, trails)
    for one, other in pairwise(found.spans):
        assert one.end == other.begin
    assert all(span.seconds >= 0 for span in found.spans)
    if found.spans:
        assert found.spans[0].begin == created
        assert found.seconds() == pytest.approx(found.spans[-1].end - created)
    assert found.share is None or 0 <= found.share <= 1 + 1e-9


# ---------------------------------------------------------------- how often


def test_dalys_interval_is_youngs_where_checkpoints_are_cheap():
    assert optimum(1, 1e8) == pytest.approx(math.sqrt(2 * 1e8), rel=1e-3)
    assert optimum(5, 2) == 2


@given(st.floats(0.01, 100), st.floats(1000, 1e7))
def test_none_near_it_wastes_less(cost, between):
    best = optimum(cost, between)
    least = waste(best, cost, between)
    assert 0 < least < 1
    for factor in (0.5, 0.8, 1.25, 2):
        assert waste(best * factor, cost, between) > least * (1 - 1e-6)


def test_nothing_is_said_of_what_is_not_known():
    assert advise(1, 1000, 0) is None
    assert advise(0, 1000, 2) is None
    assert advise(1, 0, 2) is None
    found = advise(2, 7200, 2)
    assert (found.between, found.interval) == (3600, pytest.approx(119, abs=1))


def test_what_a_checkpoint_took_is_seen_where_steps_are_told():
    # A step takes 1 s; those in which 12.5 and 18.9 lie took 4 and 3 s for one.
    steps = [(0, 10.0), (1, 11.0), (2, 15.0), (3, 16.0), (4, 17.0), (5, 20.0), (6, 21.0)]
    assert held_up(steps, [12.5, 18.9]) == pytest.approx([3, 2])
    # Told at every fifth only, and one that was written beside the work.
    assert held_up([(0, 0.0), (5, 5.0), (10, 10.0), (15, 17.0)], [12, 3]) == pytest.approx([2])
    # One that is lost in how much steps differ.
    assert held_up([(0, 0.0), (1, 1.0), (2, 2.2), (3, 3.4), (4, 4.2)], [2.5]) == []
    # Before the first step and after the last, with nothing to compare with, and an epoch's end.
    assert held_up(steps, [9.0, 30.0]) == held_up(steps[:2], [10.5]) == held_up([], [1.0]) == []
    assert held_up([(0, 0.0), (1, 1.0), (0, 9.0), (1, 10.0)], [5.0]) == []
