"""Ranks that resumed at different steps are told, and others are not."""

import pytest

from allranks.core.diagnosis.first_steps import Steps, sentence

SAME = {0: Steps(0, 77), 1: Steps(0, 77)}


def test_ranks_that_went_on_at_different_steps():
    assert sentence("lo\nss", SAME, {0: 78, 1: 0}) == (
        "ranks resumed apart: rank 0 went on at step 78 of lo\\nss, rank 1 at step 0"
    )
    assert "rank 1 went on at step 9 of x, rank 0 at step 4" in sentence(
        "x", {}, {0: 4, 1: 9, 2: 9}
    )


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        (SAME, {0: 78, 1: 78}),
        (SAME, {0: 0, 1: 0}),
        # Counted on, because the lines have no step.
        ({0: Steps(0, 77), 1: Steps(0, 75)}, {0: 78, 1: 76}),
        # Ranks that print every second step, each another one.
        ({0: Steps(0, 76), 1: Steps(1, 77)}, {0: 78, 1: 79}),
        (SAME, {0: 5}),
        ({}, {}),
    ],
)
def test_others_are_not_told(earlier, now):
    assert sentence("loss", earlier, now) == ""
