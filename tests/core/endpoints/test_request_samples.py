"""Samples of what a router counted."""

from __future__ import annotations

from typing import Any

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


def test_what_is_kept():
    samples = Samples()
    for number in range(KEPT + 3):
        samples.take(counts(0), 1000.0 + number * PACE)
    assert len(samples.series("e/blue", "blue")["at"]) == KEPT - 1
    samples.take({}, 10**6)
    assert samples.series("e/blue", "blue")["at"] == []
