"""Draws the parameters of a sweep's trials. Optuna decides; the record is its storage.

A draw depends only on the sweep, the trial's number and the earlier trials: a server that is killed
before it has recorded a trial draws the same one again.
"""

from __future__ import annotations

import hashlib
import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from allranks.errors import UsageError
from allranks.spec.sweep.job import GridSampling, RandomSampling, SamplingAlgorithm
from allranks.spec.sweep.search_space import Choice, Normal, Randint, spaces_of

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution

# Draws from (0, 1) for a normal distribution stay this far inside: six deviations from its mean.
_EDGE = 1e-9
# Significant digits of a quantized value: 3 * 0.1 is 0.3.
_DIGITS = 12
# Trials that are drawn at random before a model of the results is worth anything.
_STARTUP = 8
Goal = Literal["minimize", "maximize"]


class Draw(NamedTuple):
    """The parameters of a trial, and Optuna's own numbers for them, by parameter.

    A nested space adds its parameters as `CHOICE.NAME`; `CHOICE` itself is the mapping of them."""

    parameters: dict[str, Any]
    numbers: dict[str, float]


class Past(NamedTuple):
    """An earlier trial. ``value`` is None while it runs, and if it has failed."""

    numbers: Mapping[str, float]
    value: float | None = None
    running: bool = False


def draw(
    space: Mapping[str, Any],
    algorithm: SamplingAlgorithm,
    goal: Goal,
    number: int,
    past: Sequence[Past],
    key: str,
) -> Draw:
    """The parameters of trial ``number``, from 0. ``key`` takes the place of a missing seed."""
    if isinstance(algorithm, GridSampling):
        return Draw(grid_point(space, number), {})
    key = key if algorithm.seed is None else str(algorithm.seed)
    seed = _seed(f"{key}:{number}")
    trial: Trial | _RandomTrial
    if isinstance(algorithm, RandomSampling) and algorithm.rule == "sobol":
        study = _optuna().create_study()
        study.enqueue_trial(_sobol(space, _seed(key), number))
        trial = study.ask()
    elif algorithm.type == "bayesian":
        trial = _study(space, goal, seed, past).ask()
    else:
        trial = _RandomTrial(seed)
    base = getattr(algorithm, "logbase", None)
    numbers: dict[str, float] = {}
    parameters = dict(_suggested(space, trial, math.e if base in (None, "e") else base, numbers))
    return Draw(parameters, numbers)


class _RandomTrial:
    """Draws each number by itself, with the methods of an Optuna trial, which is not needed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def suggest_categorical(self, name: str, choices: Sequence[int]) -> int:
        return self._random.choice(choices)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def suggest_float(self, name: str, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def _study(
    space: Mapping[str, Any],
    goal: Goal,
    seed: int,
    past: Sequence[Past],
) -> Study:
    optuna = _optuna()
    with warnings.catch_warnings():
        # Optuna calls these options experimental; they are what conditional spaces need.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=_STARTUP, multivariate=True, group=True, constant_liar=True
        )
    study: Study = optuna.create_study(sampler=sampler, direction=goal)
    states = optuna.trial.TrialState
    for trial in past:
        if trial.value is None and not trial.running:
            continue
        study.add_trial(
            optuna.trial.create_trial(
                state=states.RUNNING if trial.value is None else states.COMPLETE,
                value=trial.value,
                params=dict(trial.numbers),
                distributions=dict(_distributions(space, trial.numbers)),
            )
        )
    return study


def _optuna() -> Any:
    """The library, which is an extra. Raises UsageError if it is not installed."""
    try:
        import optuna  # lazy: a server without sweeps is smaller by 35 MB
    except ImportError:
        hint = (
            "pip install 'allranks[sweep]' where the server runs; grid, random and asha need none"
        )
        raise UsageError("this sampling needs the package optuna", hint=hint) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _sobol(space: Mapping[str, Any], seed: int, number: int) -> dict[str, Any]:
    """Point ``number`` of a Sobol sequence, for all parameters that may be drawn."""
    from optuna.distributions import CategoricalDistribution, IntDistribution  # lazy: as above
    from scipy.stats import qmc  # lazy: as above

    parameters: dict[str, Any] = dict(_all_distributions(space))
    sequence = qmc.Sobol(len(parameters), seed=seed)
    if number:  # SciPy cannot go forward by 0
        sequence.fast_forward(number)
    (point,) = sequence.random(1)
    numbers: dict[str, Any] = {}
    for (name, each), share in zip(parameters.items(), point, strict=True):
        if isinstance(each, CategoricalDistribution):
            numbers[name] = each.choices[int(share * len(each.choices))]
        elif isinstance(each, IntDistribution):
            numbers[name] = each.low + int(share * (each.high - each.low + 1))
        else:
            numbers[name] = each.low + float(share) * (each.high - each.low)
    return numbers


def _all_distributions(
    space: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, BaseDistribution]]:
    """The distributions of all parameters, those of nested spaces too."""
    for short, parameter in space.items():
        if not hasattr(parameter, "type"):
            continue
        name = f"{above}{short}"
        yield name, _distribution(parameter)
        for value in getattr(parameter, "values", ()) if isinstance(parameter, Choice) else ():
            if isinstance(value, Mapping):
                yield from _all_distributions(spaces_of(value), f"{name}.")


def _suggested(
    space: Mapping[str, Any],
    trial: Trial | _RandomTrial,
    base: float,
    numbers: dict[str, float],
    above: str = "",
) -> Iterator[tuple[str, Any]]:
    for short, parameter in space.items():
        name = f"{above}{short}"
        if not hasattr(parameter, "type"):
            yield name, parameter  # a plain value of a nested space
            continue
        number = _number(name, parameter, trial)
        numbers[name] = number
        if not isinstance(parameter, Choice):
            yield name, _value(parameter, number, base)
            continue
        value = parameter.values[int(number)]
        if isinstance(value, Mapping):
            inner = dict(_suggested(spaces_of(value), trial, base, numbers, f"{name}."))
            yield from inner.items()
            value = _mapping(name, inner)
        yield name, value


def _number(name: str, space: Any, trial: Trial | _RandomTrial) -> float:
    """What is suggested for a parameter; of a choice, the index."""
    if isinstance(space, Choice):
        return int(trial.suggest_categorical(name, range(len(space.values))))
    if isinstance(space, Randint):
        return trial.suggest_int(name, 0, space.upper - 1)
    return trial.suggest_float(name, *_bounds(space))


def _bounds(space: Any) -> tuple[float, float]:
    """The bounds as they are given, and quantiles of a normal distribution."""
    if isinstance(space, Normal):
        return _EDGE, 1 - _EDGE
    return space.min_value, space.max_value


def _distribution(space: Any) -> Any:
    """What Optuna draws from."""
    from optuna.distributions import (  # lazy: as above
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(space, Choice):
        return CategoricalDistribution(range(len(space.values)))
    if isinstance(space, Randint):
        return IntDistribution(0, space.upper - 1)
    return FloatDistribution(*_bounds(space))


def _value(space: Any, number: float, base: float) -> Any:
    """The parameter's value of what Optuna drew."""
    if isinstance(space, Randint):
        return int(number)
    if isinstance(space, Normal):
        number = NormalDist(space.mu, space.sigma).inv_cdf(number)
        base = math.e
    value = base**number if "log" in space.type else number
    step = getattr(space, "q", None)
    return value if step is None else float(f"{round(value / step) * step:.{_DIGITS}g}")


def _distributions(
    space: Mapping[str, Any], numbers: Mapping[str, float], above: str = ""
) -> Iterator[tuple[str, BaseDistribution]]:
    """What the numbers of an earlier trial were drawn from, those of its nested spaces too."""
    for short, parameter in space.items():
        name = f"{above}{short}"
        if name not in numbers:
            continue
        yield name, _distribution(parameter)
        if isinstance(parameter, Choice) and isinstance(
            value := parameter.values[int(numbers[name])], Mapping
        ):
            yield from _distributions(spaces_of(value), numbers, f"{name}.")


# ---------------------------------------------------------------- grids


def grid_size(space: Mapping[str, Any]) -> int | None:
    """How many combinations a space has; None where a parameter is not a choice."""
    sizes = [_size(each) for each in space.values()]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _size(space: Any) -> int | None:
    if not hasattr(space, "type"):
        return 1
    if not isinstance(space, Choice):
        return None
    sizes = [grid_size(spaces_of(v)) if isinstance(v, Mapping) else 1 for v in space.values]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def grid_point(space: Mapping[str, Any], number: int, above: str = "") -> dict[str, Any]:
    """Combination ``number`` of a grid, from 0. The last parameter changes fastest."""
    parameters: dict[str, Any] = {}
    for short, parameter in reversed([*space.items()]):
        name, size = f"{above}{short}", _size(parameter) or 1
        number, index = divmod(number, size)
        parameters = {**_grid_value(name, parameter, index), **parameters}
    return parameters


def _grid_value(name: str, space: Any, index: int) -> dict[str, Any]:
    if not isinstance(space, Choice):
        return {name: space}
    for value in space.values:
        inner = spaces_of(value) if isinstance(value, Mapping) else {}
        size = (grid_size(inner) or 1) if inner else 1
        if index >= size:
            index -= size
            continue
        if not isinstance(value, Mapping):
            return {name: value}
        nested = grid_point(inner, index, f"{name}.")
        return {**nested, name: _mapping(name, nested)}
    raise IndexError(name)


def _mapping(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The value of a nested choice: the parameters right below it, by their own names."""
    depth = len(name) + 1
    return {
        key[depth:]: value
        for key, value in parameters.items()
        if key.startswith(f"{name}.") and "." not in key[depth:]
    }
