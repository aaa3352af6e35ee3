"""What metrics are called: by what the job asked, whoever has told already."""

import pytest

from allranks.core.metrics.names import key
from allranks.core.plan import MetricTask, Task
from allranks.spec.fields.metric_formats import BUILTIN

METRICS = (MetricTask("speed", "(x)", None), MetricTask("loss", "(x)", 2))


@pytest.mark.parametrize(
    ("name", "rank", "expected"),
    [
        ("speed", 0, "speed/rank_0"),
        ("speed", 1, "speed/rank_1"),
        ("loss", 2, "loss"),
        ("loss", None, "loss/mlflow"),
        ("own", None, "own"),
        ("seen", None, "seen/mlflow"),
    ],
)
def test_a_name_does_not_change_with_who_tells(name, rank, expected):
    task = Task("j", "e", "c", nodes=3, metrics=METRICS)
    assert key(task, name, rank, {"seen"}) == expected
    alone = Task("j", "e", "c", metrics=METRICS)
    assert key(alone, name, rank, {"seen"}) == expected.partition("/rank")[0]


def test_what_a_known_format_finds_is_of_the_ranks_that_are_read():
    for rank, expected in ((None, "acc/rank_0"), (0, "acc")):
        task = Task("j", "e", "c", nodes=2, metrics=(MetricTask("keras", BUILTIN, rank),))
        assert key(task, "acc", 0, ()) == expected


def test_what_ranks_log_by_themselves_is_of_the_first_one_without_a_number():
    task = Task("j", "e", "c", nodes=2)
    assert [key(task, "loss", rank, ()) for rank in (None, 0, 1)] == ["loss", "loss", "loss/rank_1"]


@pytest.mark.parametrize("printing", [None, 0, 1])
def test_what_ranks_log_by_themselves_is_named_alike_whoever_prints(printing: int | None) -> None:
    """A pattern for one metric says nothing of others."""
    task = Task("j", "e", "c", nodes=2, metrics=(MetricTask("acc", "(x)", printing),))
    assert [key(task, "loss", rank, ()) for rank in (0, 1)] == ["loss", "loss/rank_1"]
