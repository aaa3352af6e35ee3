"""Whether time-limited attempts get anywhere, and what follows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.lifecycle.decide import Clock, Job, Step, decide, new, outcome
from allranks.core.lifecycle.fold import fold
from allranks.core.lifecycle.repeated_time_limits import Left, Progress, Row, ends, progress
from allranks.core.packing import pack, unpack
from allranks.core.plan import Rules
from allranks.events import Event, Kind
from allranks.statuses import Reason

MADE, NONE, UNKNOWN = Progress
BEFORE = Left(step=50, files=frozenset({1, 2}), contents=7)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (BEFORE, NONE),
        (BEFORE._replace(step=51), MADE),
        (BEFORE._replace(files=frozenset({1, 2, 3})), MADE),
        (BEFORE._replace(contents=8), NONE),  # the same steps were taken again
        (BEFORE._replace(hidden=True), UNKNOWN),
        (BEFORE._replace(hidden=True, step=51), MADE),
    ],
)
def test_progress_is_a_new_file_or_a_further_step(now, expected):
    assert progress(BEFORE, now) is expected


def test_a_file_that_is_written_again_may_be_progress_where_no_metric_decides():
    before = BEFORE._replace(step=None)
    assert progress(before, before._replace(contents=8)) is UNKNOWN
    assert progress(before, before._replace(contents=8, step=0)) is MADE
    assert progress(Left(), Left(contents=8)) is NONE  # there are no files
    assert progress(Left(), Left(step=0)) is MADE


def test_what_was_left_survives_the_record():
    assert unpack(Left, pack(BEFORE.pack())) == BEFORE


@given(st.lists(st.sampled_from(Progress)), st.sampled_from(["fail", "warn", "ignore"]))
def test_only_three_in_a_row_end_a_job(several, rule):
    row = Row()
    for each in several:
        row = row.after(each)
    stalled = len(several) >= 3 and {*several[-3:]} == {NONE}
    assert ends(row, rule) is (stalled and rule == "fail")


def ends_by(job, reason, clock=None, at=100.0):
    """An attempt that its engine ends for this reason; the step that follows once it is gone."""
    for kind, data in (
        (Kind.SUBMITTED, {}),
        (Kind.SEEN, {"state": "up", "why": ""}),
        (Kind.GO, {}),
        (Kind.SEEN, {"state": "gone", "why": "", "reason": reason}),
        (Kind.CLOSING, {"purpose": "relaunch", "reason": reason}),
        (Kind.STOPPING, {}),
    ):
        job = fold(job, Event(kind, at, job.launch, job.attempt, data=data))
    return job, decide(job, Rules(max_attempts=2), clock or Clock(at))


def after(job, step, at=100.0):
    return fold(job, Event(step.event, at, job.launch, job.attempt, data=step.data))


def test_the_third_in_a_row_ends_the_job_and_a_preemption_does_not_count():
    job = new(1)
    for reason in ("TIME_LIMIT", "PREEMPTED", "TIME_LIMIT", "NODE_LOST"):
        of_limit = reason == "TIME_LIMIT"
        job, step = ends_by(job, reason, Clock(100.0, progress=NONE if of_limit else None))
        assert step.event is Kind.RELAUNCHED
        assert ("of 3 in a row" in step.data.get("message", "")) is of_limit
        job = after(job, step)
        assert unpack(Job, pack(job)) == job
    assert job.stalled == Row(NONE, 2)
    job, step = ends_by(job, "TIME_LIMIT", Clock(100.0, progress=NONE))
    assert step == Step(Kind.CLOSING, data={"purpose": "finish", "reason": Reason.NO_PROGRESS})
    job = after(job, step)
    assert decide(job, Rules(max_attempts=2), Clock(100.0)).event is Kind.FINISHED
    assert outcome(job).reason is Reason.NO_PROGRESS


def test_progress_begins_the_row_anew():
    job = new(1)
    for each, count in ((NONE, 1), (NONE, 2), (MADE, 1), (NONE, 1), (UNKNOWN, 1), (NONE, 1)):
        job, step = ends_by(job, "TIME_LIMIT", Clock(100.0, progress=each))
        job = after(job, step)
        assert job.stalled == Row(each, count)


def test_where_nothing_is_seen_it_is_only_said():
    job, said = new(1), []
    for _ in range(5):
        job, step = ends_by(job, "TIME_LIMIT", Clock(100.0, progress=UNKNOWN))
        said.append(step.data.get("message", ""))
        job = after(job, step)
    assert [each[:22] for each in said] == [
        "",
        "",
        *(f"{n} attempts in a row re" for n in (3, 4, 5)),
    ]
