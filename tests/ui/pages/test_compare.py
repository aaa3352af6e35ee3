"""The values of a metric of several runs."""

from __future__ import annotations

import sys

import pytest

from allranks.ui.pages.compare import Value, _column


@pytest.mark.parametrize(
    ("name", "kind", "best"),
    [
        ("acc", "last", [False, True]),
        ("acc", "least", [False, False]),
        ("loss", "least", [True, False]),
        ("loss", "greatest", [False, False]),
        ("speed", "last", [False, False]),
    ],
)
def test_only_what_can_be_best_is(name: str, kind: str, best: list[bool]) -> None:
    assert [value.best for value in _column(name, kind, [[1.0], [2.0]])] == best


@pytest.mark.parametrize(
    ("value", "spread", "shown"),
    [(0.967867, 0.0064, 0.9679), (922.0333, 16.2, 922), (0.5, None, 0.5), (1.5, 0.0, 1.5)],
)
def test_a_mean_has_the_digits_that_its_spread_leaves(
    value: float, spread: float | None, shown: float
) -> None:
    assert Value(value, spread).shown == shown


_LARGEST = sys.float_info.max


@pytest.mark.parametrize("values", [[_LARGEST, _LARGEST], [_LARGEST, -_LARGEST], [_LARGEST, 1e308]])
def test_the_mean_of_the_largest_numbers_is_shown(values: list[float]) -> None:
    """Their sum, the difference and the rounded mean are too large for a number."""
    first, second = _column("loss", "last", [values, values[::-1]])
    half = values[0] / 2 + values[1] / 2
    assert first.value == second.value == pytest.approx(half)
    assert first.shown == pytest.approx(half, rel=0.1)
