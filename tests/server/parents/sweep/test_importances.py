"""What each parameter is worth."""

from __future__ import annotations

import random

from allranks.server.parents.sweep.importances import importances
from allranks.spec.sweep.search_space import spaces_of

SPACE = spaces_of(
    {
        "x": {"type": "uniform", "min_value": 0, "max_value": 1},
        "y": {"type": "uniform", "min_value": 0, "max_value": 1},
        "o": {"type": "choice", "values": ["sgd", "adam"]},
        "nested": {"type": "choice", "values": ["a", {"z": 1}]},
    }
)


def trials(count: int):
    rng = random.Random(1)
    for _ in range(count):
        drawn = {"x": rng.random(), "y": rng.random(), "o": rng.choice(["sgd", "adam"])}
        value = 10 * (drawn["x"] - 0.3) ** 2 + (0.5 if drawn["o"] == "sgd" else 0)
        yield {**drawn, "nested": "a"}, value


def test_the_parameter_that_matters_is_first():
    found = importances(SPACE, "minimize", list(trials(100)))
    assert next(iter(found)) == "x"
    assert found.keys() == {"x", "y", "o"}
    assert sum(found.values()) == 1 or abs(sum(found.values()) - 1) < 0.01
    assert found["y"] < found["o"] < found["x"]


def test_few_trials_say_nothing():
    assert importances(SPACE, "minimize", list(trials(9))) == {}


def test_equal_trials_are_no_error():
    same = [({"x": 0.5, "y": 0.5, "o": "sgd", "nested": "a"}, 1.0)] * 20
    importances(SPACE, "maximize", same)
