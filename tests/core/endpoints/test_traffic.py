"""How requests are divided among deployments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.endpoints.traffic import with_share

shares = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100), max_size=4)


@pytest.mark.parametrize(
    ("before", "percent", "after"),
    [
        ({}, 30, {"new": 100}),
        ({"old": 100}, 25, {"new": 25, "old": 75}),
        ({"old": 100, "none": 0}, 100, {"new": 100}),
        ({"a": 50, "b": 25, "new": 25}, 50, {"new": 50, "a": 33, "b": 17}),
    ],
)
def test_a_share_is_taken_from_all(before: dict[str, int], percent: int, after: dict[str, int]):
    assert with_share(before, "new", percent) == after


@given(shares, st.integers(1, 100))
def test_traffic_always_sums_to_100(traffic: dict[str, int], percent: int):
    after = with_share(traffic, "new", percent)
    assert sum(after.values()) == 100
    others = {name for name, share in traffic.items() if share}
    assert after["new"] == (percent if others else 100)
