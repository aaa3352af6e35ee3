"""Numbers and amounts in words."""

import pytest

from allranks.core.amounts import counted, ranges


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 nodes"),
        (1, "1 node"),
        (2, "2 nodes"),
        (1.0, "1 node"),
        (0.5, "0.5 nodes"),
        (12345678, "12345678 nodes"),
    ],
)
def test_one_is_one(number, said):
    assert counted(number, "node") == said


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((3,), "3"), ((1, 2), "1–2"), ((0, 2, 3, 4, 9), "0, 2–4, 9"), (range(1, 512), "1–511")],
)
def test_ranges(numbers, text):
    assert ranges(numbers) == text
