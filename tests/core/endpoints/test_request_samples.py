"""Samples of what a router counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allranks.core.endpoints.request_samples import KEPT, PACE, Samples


def counts(requests: int) -> dict[str, Any]:
    times = {"p50": 1.0, "p95": 2.0, "p99": None}
    replicas = {"a": {"ready": True}, "b": {"ready": False}}
    totals = {"requests": requests, "errors": 0, "refused": 0, "waiting": 3}
    return {"e/blue": {**totals, **times, "replicas": replicas}}


def test_rates_of_totals_that_begin_again():
    samples = Samples()
    assert samples.rate("e/blue") == 0.0
    for number, requests in enumerate((0, 50, 150, 20)):  # the last one is a new router's
        samples.take(counts(requests), 1000.0 + number * PACE)
        samples.take(counts(10**6), 1001.0 + number * PACE)  # too early
    assert samples.rate("e/blue") == 170 / (3 * PACE)
    made = samples.series("e/blue", "blue")
    assert made["requests"] == [50 / PACE, 100 / PACE, 20 / PACE]
    assert made["at"] == [1000.0 + PACE, 1000.0 + 2 * PACE, 1000.0 + 3 * PACE]
    assert (made["waiting"], made["ready"], made["p99"]) == ([3] * 3, [1] * 3, [None] * 3)
    assert samples.series("e/green", "green")["at"] == []


def test_an_hour_is_kept():
    samples = Samples()
    number = round(KEPT / PACE)
    for place in range(number + 3):
        samples.take(counts(0), 1000.0 + place * PACE)
    assert len(samples.series("e/blue", "blue")["at"]) == number - 1
    samples.take({}, 10**6)
    assert samples.series("e/blue", "blue")["at"] == []


def test_latencies_have_gaps_where_no_request_came():
    samples = Samples()
    for number, requests in enumerate((5, 5, 6, 6)):
        samples.take(counts(requests), 1000.0 + number * PACE)
    assert samples.series("e/blue", "blue")["p50"] == [None, 1.0, None]


def test_the_next_server_continues_with_a_gap():
    before, after = Samples(), Samples()
    before.take(counts(0), 1000.0)
    before.take(counts(50), 1000.0 + PACE)
    after.restore(json.loads(json.dumps(before.rows)))
    after.take(counts(90), 1000.0 + 20 * PACE)
    after.take(counts(95), 1000.0 + 21 * PACE)
    made = after.series("e/blue", "blue")
    assert made["at"] == [1000.0 + PACE, 1000.0 + 20 * PACE, 1000.0 + 21 * PACE]
    for key, values in {"requests": [10.0, None, 1.0], "ready": [1, None, 1]}.items():
        assert made[key] == values
    for damaged in (
        {"e": 1},
        {"e": [[1]]},
        {"e": [["x"] * 9]},
        {"e": [[True] * 9]},
        {"e": [[None] * 9]},
    ):
        with pytest.raises((TypeError, ValueError)):
            after.restore(damaged)
    assert after.series("e/blue", "blue") == made
