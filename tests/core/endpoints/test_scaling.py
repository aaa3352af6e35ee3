"""How many replicas a load needs, and for how long they stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.endpoints.scaling import Need, Scale, follow, needed

SCALE = Scale(0, 10, 0.7, 60.0)


@pytest.mark.parametrize(
    ("load", "replicas"), [(0.0, 0), (0.001, 1), (0.7, 1), (2.1, 3), (2.2, 4), (99.0, 10)]
)
def test_as_many_as_the_load_needs(load: float, replicas: int):
    assert needed(SCALE, load) == replicas


loads = st.floats(0, 50)


@given(st.integers(0, 3), st.integers(3, 9), st.floats(0.1, 5), loads, loads)
def test_within_bounds_and_never_fewer_for_more(least, most, each, one, other):
    scale = Scale(least, most, each)
    few, many = (needed(scale, load) for load in sorted((one, other)))
    assert least <= few <= many <= most
    if many < most:
        assert many * each >= max(one, other) - 1e-5


@given(st.lists(st.tuples(st.floats(0.1, 40), st.integers(0, 5)), min_size=1, max_size=50))
def test_more_at_once_and_fewer_only_after_the_delay(steps):
    at, needs, seen = 0.0, (), []
    for wait, replicas in steps:
        at += wait
        seen.append(Need(at, replicas))
        needs = follow(needs, seen[-1], SCALE.delay)
        lately = [item.replicas for item in seen if at - item.at < SCALE.delay]
        assert needs[0].replicas == max(lately)
    assert len(needs) <= 6, "it keeps no more than it needs"
