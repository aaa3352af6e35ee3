"""How long and how often a deployment is tried."""

from __future__ import annotations

from itertools import pairwise

from allranks.core.endpoints.patience import (
    MOST_TRIES,
    STEADY,
    after_failure,
    pause,
    starts_at_once,
    tries,
)


def test_patience_doubles_and_has_an_end():
    assert [pause(n) for n in (0, 1, 2, 20)] == [0.0, 1.0, 2.0, 300.0]
    failures, pauses = 0, []
    while starts_at_once(failures, was_ready=False) != 0:
        failures, wait = after_failure(failures, False, 2.0)
        pauses.append(wait)
    assert len(pauses) == MOST_TRIES
    assert all(b in (2 * a, 300.0) for a, b in pairwise(pauses))
    assert sum(pauses[:-1]) < 1800
    assert "given up" in tries(failures, False, 0.0)
    assert starts_at_once(10**6, was_ready=True) == 1, "what worked once is tried on"


def test_one_that_dies_soon_after_it_was_ready_is_no_endless_loop():
    assert after_failure(0, True, STEADY) == (1, 0.0)
    assert after_failure(7, True, STEADY) == (1, 0.0)
    assert after_failure(0, True, 2.0) == (1, 1.0)
    assert after_failure(3, True, 2.0) == (4, 8.0)
    assert after_failure(3, False, STEADY) == (4, 8.0)
