"""Drawn parameters: the distributions, determinism, grids, and what Bayesian sampling is worth."""

from __future__ import annotations

import math
import subprocess
import sys
from statistics import fmean, pstdev

import pytest

from allranks.server.parents.sweep.sampler import Past, draw, grid_point, grid_size
from allranks.spec.sweep.job import AshaSampling, BayesianSampling, RandomSampling
from allranks.spec.sweep.search_space import spaces_of

LOG2, LOG3 = math.log(2), math.log(3)


def drawn(space, count=300, algorithm=None):
    """The values of parameter x in many trials."""
    return [
        draw(
            spaces_of({"x": space}), algorithm or RandomSampling(seed=1), "minimize", n, (), "k"
        ).parameters["x"]
        for n in range(count)
    ]


def test_bounds_and_means_of_the_distributions():
    uniform = drawn({"type": "uniform", "min_value": 2, "max_value": 4})
    assert 2 <= min(uniform) < 2.1
    assert 3.9 < max(uniform) <= 4
    log = drawn({"type": "loguniform", "min_value": LOG2, "max_value": 5 * LOG2})
    assert min(log) >= 2
    assert max(log) <= 32
    assert fmean(map(math.log2, log)) == pytest.approx(3, abs=0.2)
    normal = drawn({"type": "normal", "mu": 10, "sigma": 2})
    assert (fmean(normal), pstdev(normal)) == (
        pytest.approx(10, abs=0.5),
        pytest.approx(2, abs=0.4),
    )
    positive = drawn({"type": "lognormal", "mu": 0, "sigma": 1})
    assert min(positive) > 0
    assert {*drawn({"type": "randint", "upper": 3})} == {0, 1, 2}
    assert {*drawn({"type": "choice", "values": ["a", 1, 2.5]})} == {"a", 1, 2.5}


@pytest.mark.parametrize(
    "space",
    [
        {"type": "quniform", "min_value": 0, "max_value": 1, "q": 0.1},
        {"type": "qloguniform", "min_value": 0, "max_value": 3, "q": 0.1},
        {"type": "qnormal", "mu": 0, "sigma": 1, "q": 0.1},
        {"type": "qlognormal", "mu": 0, "sigma": 1, "q": 0.1},
    ],
)
def test_quantized_values_are_multiples(space):
    for value in drawn(space, 100):
        assert value == float(f"{round(value / 0.1) * 0.1:.12g}")


def test_a_logbase_changes_the_base():
    algorithm = RandomSampling(seed=1, logbase=10)
    values = drawn({"type": "loguniform", "min_value": -3, "max_value": -1}, 100, algorithm)
    assert 1e-3 <= min(values) < max(values) <= 0.1


@pytest.mark.parametrize("algorithm", [RandomSampling, AshaSampling, BayesianSampling])
def test_a_draw_depends_on_seed_and_number_only(algorithm):
    space = spaces_of({"x": {"type": "uniform", "min_value": 0, "max_value": 1}})
    seeded = algorithm(seed=7)
    once = draw(space, seeded, "minimize", 3, (), "one")
    assert draw(space, seeded, "minimize", 3, (), "two") == once
    assert draw(space, seeded, "minimize", 4, (), "one") != once
    unseeded = algorithm()
    by_name = draw(space, unseeded, "minimize", 3, (), "one")
    assert draw(space, unseeded, "minimize", 3, (), "one") == by_name
    assert draw(space, unseeded, "minimize", 3, (), "two") != by_name


def test_sobol_spreads_evenly():
    values = drawn(
        {"type": "uniform", "min_value": 0, "max_value": 16},
        16,
        RandomSampling(seed=3, rule="sobol"),
    )
    assert sorted(math.floor(each) for each in values) == list(range(16))


NESTED = {
    "optimizer": {
        "type": "choice",
        "values": [
            "sgd",
            {"name": "adam", "beta": {"type": "choice", "values": [0.9, 0.99]}},
        ],
    },
    "batch": {"type": "choice", "values": [16, 32]},
}


def test_a_nested_space_exists_in_the_trials_that_draw_it():
    space = spaces_of(NESTED)
    for number in range(20):
        found = draw(space, RandomSampling(seed=1), "minimize", number, (), "k").parameters
        if found["optimizer"] == "sgd":
            assert "optimizer.beta" not in found
        else:
            assert found["optimizer"] == {"name": "adam", "beta": found["optimizer.beta"]}
            assert found["optimizer.name"] == "adam"


def test_a_grid_has_every_combination_once():
    space = spaces_of(NESTED)
    assert grid_size(space) == 6
    points = [grid_point(space, number) for number in range(6)]
    shown = [(str(each["optimizer"]), each["batch"]) for each in points]
    assert len({*shown}) == 6
    assert [each["batch"] for each in points] == [16, 32] * 3
    assert grid_size(spaces_of({"x": {"type": "uniform", "min_value": 0, "max_value": 1}})) is None
    choices = {str(n): {"type": "choice", "values": list(range(1000))} for n in range(3)}
    assert grid_size(spaces_of(choices)) == 10**9
    assert grid_point(spaces_of(choices), 10**9 - 1) == {"0": 999, "1": 999, "2": 999}


def _branin(x: float, y: float) -> float:
    a = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


FUNCTIONS = {
    "sphere": lambda x, y: x**2 + y**2,
    "rosenbrock": lambda x, y: (1 - x) ** 2 + 100 * (y - x**2) ** 2,
    "branin": _branin,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bayesian_beats_random(name):
    """At 40 trials, 50 seeds: the one-sided test of Mann and Whitney, at 5 %."""
    from scipy.stats import mannwhitneyu  # a seventh of what collecting all tests takes

    space = spaces_of(
        {each: {"type": "uniform", "min_value": -5, "max_value": 10} for each in ("x", "y")}
    )

    def best(algorithm) -> float:
        past: list[Past] = []
        for number in range(40):
            found = draw(space, algorithm, "minimize", number, past, "k")
            value = FUNCTIONS[name](found.parameters["x"], found.parameters["y"])
            past.append(Past(found.numbers, value))
        return min(each.value for each in past if each.value is not None)

    bayesian = [best(BayesianSampling(seed=seed)) for seed in range(50)]
    random = [best(RandomSampling(seed=seed)) for seed in range(50)]
    assert mannwhitneyu(bayesian, random, alternative="less").pvalue < 0.05


def test_random_draws_need_no_library() -> None:
    """In a Python without Optuna, whose import takes most of the memory of a sweep."""
    script = (
        "import sys; sys.modules['optuna'] = None\n"
        "from allranks.server.parents.sweep.sampler import draw\n"
        "from allranks.spec.sweep.job import AshaSampling, RandomSampling\n"
        "from allranks.spec.sweep.search_space import Choice, Normal, Randint, Uniform\n"
        "space = {'x': Uniform(min_value=0, max_value=1), 'c': Choice(values=['a', 'b']),\n"
        "         'n': Normal(mu=0, sigma=1), 'r': Randint(upper=9)}\n"
        "for algorithm in RandomSampling(seed=3), AshaSampling(seed=3):\n"
        "    drawn = draw(space, algorithm, 'minimize', 0, (), 'k').parameters\n"
        "    again = draw(space, algorithm, 'minimize', 0, (), 'k').parameters\n"
        "    other = draw(space, algorithm, 'minimize', 1, (), 'k').parameters\n"
        "    assert drawn == again != other and 0 <= drawn['x'] <= 1 and drawn['c'] in 'ab'\n"
        "    assert drawn['r'] in range(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
