"""The metrics of a job, a row each."""

from __future__ import annotations

from typing import Any

from allranks.sdk.jobs.metrics import across_ranks


def series(name: str, attempt: int, rank: int | None, *values: Any) -> Any:
    numbers = [value for value in values if not isinstance(value, str)]
    return {
        "name": name,
        "attempt": attempt,
        "rank": rank,
        "last": [len(values) - 1, 0.0, values[-1]],
        "min": min(numbers, default=None),
        "max": max(numbers, default=None),
        "shape": list(values),
    }


def test_ranks_and_attempts_are_one_row() -> None:
    rows = across_ranks(
        [
            series("loss", 1, 0, 9.0, 4.0),
            series("loss", 2, 1, 3.0, 2.0, 1.0),
            series("loss", 2, 0, 3.0, 2.0),
            series("acc", 1, None, 0.5, "NaN"),
        ]
    )
    assert rows[0] == ("loss", 2, 1.5, 1.0, 9.0, 2, [3.0, 2.0])
    assert rows[1] == ("acc", 1, "NaN", 0.5, 0.5, 1, [0.5, "NaN"])
