"""Azure ML's early termination policies, against decisions worked out by hand.

Sources: Azure ML's documentation of sweep jobs. Bandit, maximize: stop below best / (1 + factor) or
best - amount; minimize: above best * (1 + factor) or best + amount. Median: stop if the best value
is worse than the median of the running averages of all trials. Truncation: stop the lowest given
percentage, rounded down.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.parents.early_termination import Curve, first_interval, judge
from allranks.spec.sweep.early_termination import Bandit, MedianStopping, TruncationSelection
from allranks.spec.sweep.job import AshaSampling

MAX, MIN = "maximize", "minimize"
NAN, INF = math.nan, math.inf

# Policy, goal, the values of the other trials, the values of trial 0, the interval where it stops.
ROWS = [
    # slack_factor 0.25: 0.8 / 1.25 = 0.64
    (Bandit(slack_factor=0.25), MAX, [(0.8,)], (0.65,), None),
    (Bandit(slack_factor=0.25), MAX, [(0.8,)], (0.64,), None),
    (Bandit(slack_factor=0.25), MAX, [(0.8,)], (0.63,), 1),
    (Bandit(slack_factor=0.25), MAX, [(0.8,), (0.4,)], (0.63,), 1),
    (Bandit(slack_factor=0.25), MAX, [(0.8, 0.1)], (0.7, 0.1), None),
    (Bandit(slack_factor=0.25), MAX, [(0.5, 0.9)], (0.5, 0.6), 2),
    (Bandit(slack_factor=0.25), MAX, [(0.5, 0.9)], (0.5,), None),
    (Bandit(slack_factor=0.25), MAX, [], (0.1, 0.05), None),
    # slack_factor 0.5, minimize: 2 * 1.5 = 3
    (Bandit(slack_factor=0.5), MIN, [(2.0,)], (2.9,), None),
    (Bandit(slack_factor=0.5), MIN, [(2.0,)], (3.0,), None),
    (Bandit(slack_factor=0.5), MIN, [(2.0,)], (3.1,), 1),
    (Bandit(slack_factor=0.5), MIN, [(2.0, 1.0)], (3.0, 1.6), 2),
    (Bandit(slack_factor=0.5), MIN, [(2.0, 1.0)], (3.0, 1.5), None),
    # The distance of a negative best is the same: -2 + 1 = -1.
    (Bandit(slack_factor=0.5), MIN, [(-2.0,)], (-1.1,), None),
    (Bandit(slack_factor=0.5), MIN, [(-2.0,)], (-0.9,), 1),
    # slack_amount 0.2: 0.8 - 0.2 = 0.6; minimize: 1 + 0.25
    (Bandit(slack_amount=0.25), MAX, [(0.75,)], (0.5,), None),
    (Bandit(slack_amount=0.25), MAX, [(0.75,)], (0.49,), 1),
    (Bandit(slack_amount=0.25), MIN, [(1.0,)], (1.25,), None),
    (Bandit(slack_amount=0.25), MIN, [(1.0,)], (1.26,), 1),
    # Intervals: every second one, from the fifth report on: 6, 8, …
    (Bandit(slack_amount=0.1, evaluation_interval=2), MAX, [(1.0,) * 3], (0.1,), None),
    (Bandit(slack_amount=0.1, evaluation_interval=2), MAX, [(1.0,) * 3], (0.1,) * 2, 2),
    (Bandit(slack_amount=0.1, delay_evaluation=3), MAX, [(1.0,) * 5], (0.1,) * 2, None),
    (Bandit(slack_amount=0.1, delay_evaluation=3), MAX, [(1.0,) * 5], (0.1,) * 5, 3),
    (
        Bandit(slack_amount=0.1, evaluation_interval=2, delay_evaluation=5),
        MAX,
        [(1.0,) * 9],
        (0.1,) * 5,
        None,
    ),
    (
        Bandit(slack_amount=0.1, evaluation_interval=2, delay_evaluation=5),
        MAX,
        [(1.0,) * 9],
        (0.1,) * 9,
        6,
    ),
    # A value that is not a number is the worst.
    (Bandit(slack_factor=0.25), MAX, [(0.8,)], (NAN,), 1),
    (Bandit(slack_factor=0.25), MAX, [(NAN,)], (0.1,), None),
    (Bandit(slack_factor=0.25), MIN, [(1.0,)], (INF,), 1),
    (Bandit(slack_factor=0.25), MIN, [(1.0,)], (-INF,), 1),
    (MedianStopping(), MIN, [(1.0, 1.0)] * 2, (INF, -INF), 1),
    # Averages 0.2, 0.4 and the trial's own 0.3: the median is 0.3.
    (MedianStopping(), MAX, [(0.2,), (0.4,)], (0.3,), None),
    (MedianStopping(), MAX, [(0.3,), (0.4,)], (0.2,), 1),
    (MedianStopping(), MAX, [(0.4,)], (0.2,), 1),
    (MedianStopping(), MAX, [], (0.2, 0.1), None),
    # Averages 0.5 and 0.35: their median is 0.425, and the best value 0.5 is not worse.
    (MedianStopping(), MAX, [(0.4, 0.6)], (0.5, 0.2), None),
    # Averages at interval 2: 0.7, 0.5, and 0.3 of this trial; its best, 0.35, is below 0.5.
    (MedianStopping(delay_evaluation=2), MAX, [(0.6, 0.8), (0.5, 0.5)], (0.25, 0.35), 2),
    (MedianStopping(), MIN, [(3.0,), (2.0,)], (2.5,), None),
    (MedianStopping(), MIN, [(3.0,), (2.0,)], (3.5,), 1),
    (MedianStopping(evaluation_interval=3), MIN, [(1.0,) * 4], (2.0,) * 2, None),
    (MedianStopping(evaluation_interval=3), MIN, [(1.0,) * 4], (2.0,) * 4, 3),
    # 20 % of 5 trials is 1, of 4 trials 0.
    (TruncationSelection(truncation_percentage=20), MAX, [(0.2,)] * 4, (0.1,), 1),
    (TruncationSelection(truncation_percentage=20), MAX, [(0.2,)] * 3, (0.1,), None),
    (TruncationSelection(truncation_percentage=20), MAX, [(0.2,)] * 4, (0.3,), None),
    (TruncationSelection(truncation_percentage=50), MIN, [(1.0,), (2.0,), (4.0,)], (3.0,), 1),
    (TruncationSelection(truncation_percentage=50), MIN, [(1.0,), (3.0,), (4.0,)], (2.0,), None),
    # Only the value at the interval counts, not the best one before.
    (
        TruncationSelection(truncation_percentage=50, delay_evaluation=2),
        MAX,
        [(0.1, 0.6)],
        (0.9, 0.5),
        2,
    ),
    (
        TruncationSelection(truncation_percentage=34, evaluation_interval=2),
        MAX,
        [(0.5, 0.5), (0.6, 0.6)],
        (0.1,),
        None,
    ),
    (
        TruncationSelection(truncation_percentage=34, evaluation_interval=2),
        MAX,
        [(0.5, 0.5), (0.6, 0.6)],
        (0.1, 0.1),
        2,
    ),
    # Without ended trials, this one is alone.
    (
        TruncationSelection(truncation_percentage=50, exclude_finished_jobs=True),
        MAX,
        [(0.5,), (0.6,)],
        (0.1,),
        None,
    ),
    # Rungs 1, 3, 9: the best third of those that have reached a rung continues.
    (AshaSampling(), MAX, [], (0.1,), None),
    (AshaSampling(), MAX, [(0.2,)], (0.1,), 1),
    (AshaSampling(), MAX, [(0.2,), (0.1,)], (0.3,), None),
    (AshaSampling(), MAX, [(0.1,)] * 5, (0.2,), None),
    (AshaSampling(min_resource=2, reduction_factor=2), MIN, [(1.0,) * 4], (2.0,), None),
    (AshaSampling(min_resource=2, reduction_factor=2), MIN, [(1.0,) * 4], (2.0,) * 3, 2),
    (
        AshaSampling(min_resource=2, reduction_factor=2),
        MIN,
        [(1.0, 3.0, 1.0, 1.0)],
        (0.5,) * 3,
        None,
    ),
]


@pytest.mark.parametrize(("policy", "goal", "others", "mine", "interval"), ROWS)
def test_a_decision_worked_out_by_hand(policy, goal, others, mine, interval):
    curves = {0: Curve(mine)} | {n: Curve(each, running=False) for n, each in enumerate(others, 1)}
    judgments = judge(policy, goal, curves)
    stopped = judgments[0].interval if 0 in judgments and judgments[0].why else None
    assert stopped == interval
    assert judgments.keys() <= {0}, "an ended trial is not judged"


@given(
    st.sampled_from([row[0] for row in ROWS]),
    st.sampled_from([MAX, MIN]),
    st.lists(st.lists(st.floats(), min_size=1, max_size=6), min_size=1, max_size=5),
)
def test_a_trial_is_judged_once_at_each_interval(policy, goal, values):
    curves = {n: Curve(tuple(each)) for n, each in enumerate(values)}
    judged = {
        n: curves[n]._replace(judged=found.interval)
        for n, found in judge(policy, goal, curves).items()
    }
    again = judge(policy, goal, curves | judged)
    assert not [n for n in judged if not again.get(n, judged[n]) or (n in again and not judged)]
    assert all(found.interval > judged[n].judged for n, found in again.items() if n in judged)


def test_a_reason_names_the_value_and_the_limit():
    policy, curves = Bandit(slack_factor=0.25), {0: Curve((0.5,)), 1: Curve((0.8,))}
    why = judge(policy, MAX, curves)[0].why
    assert why == "its best value is 0.5 at interval 1; the bandit policy allows 0.64"


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        (Bandit(slack_factor=0.1), 1),
        (Bandit(slack_factor=0.1, evaluation_interval=3), 3),
        (Bandit(slack_factor=0.1, delay_evaluation=5), 5),
        (MedianStopping(delay_evaluation=5, evaluation_interval=3), 6),
        (MedianStopping(delay_evaluation=6, evaluation_interval=3), 6),
        (AshaSampling(min_resource=4), 4),
    ],
)
def test_the_first_interval_at_which_a_trial_is_judged(policy, first):
    assert first_interval(policy) == first
    curves = {n: Curve(tuple(map(float, range(20)))) for n in (0, 1)}
    judged = judge(policy, "minimize", curves)
    early = {n: Curve(curve.values[: first - 1]) for n, curve in curves.items()}
    assert judged
    assert not judge(policy, "minimize", early)
