"""What slows a rank down is told, and what is as bad elsewhere is not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.diagnosis.slow_causes import causes

NODES = {0: 0, 1: 0, 2: 1, 3: 1}
HOSTS: dict[int, Any] = {0: {}, 1: {}}
RANKS: dict[int, Any] = {rank: {} for rank in NODES}


@pytest.mark.parametrize(
    ("strain", "host", "text"),
    [
        ({"stopped": 0.5}, {}, "a signal keeps it stopped 50% of the time"),
        ({"throttled": 0.8}, {}, "its control group has used its CPUs up in 80% of the periods"),
        ({"blocked": 0.4}, {}, "it waits for a disk 40% of the time"),
        ({}, {"others": 3.0, "busiest": "stress (process 7)"}, "the busiest of them is stress"),
        ({}, {"swapping": 5e6}, "its host swaps 5.0 MB a second"),
        ({}, {"clock": 0.4}, "the processors of its host run 60% below their highest clock"),
        ({}, {"resent": 0.05}, "its host sends 5% of its TCP segments again"),
    ],
)
def test_a_sign_is_told_unless_the_others_have_it_too(
    strain: dict[str, float], host: dict[str, Any], text: str
):
    assert text in "; ".join(causes({3}, {**RANKS, 3: strain}, {0: {}, 1: host}, NODES))
    everywhere = dict.fromkeys(NODES, strain)
    assert causes({3}, everywhere, {0: host, 1: host}, NODES) == []


def test_on_the_only_host_other_programs_count_if_the_rank_lacks_a_processor():
    host = {0: {"others": 1.5, "busiest": "make (process 3)", "io": 0.9}}
    ranks = {0: {"starved": 0.05}, 1: {"starved": 0.6}}
    assert causes({1}, ranks, host, {0: 0, 1: 0}) == [
        "it waits 60% of the time for a processor",
        "other programs use 1.5 CPUs of its host",
        "the busiest of them is make (process 3)",
    ]
    assert causes({1}, {0: {}, 1: {}}, host, {0: 0, 1: 0}) == []


@given(
    st.dictionaries(
        st.sampled_from(["stopped", "throttled", "blocked", "starved"]), st.floats(0, 1)
    )
)
def test_equal_ranks_explain_nothing(strain: dict[str, float]):
    assert causes({1}, dict.fromkeys(NODES, strain), HOSTS, NODES) == []
