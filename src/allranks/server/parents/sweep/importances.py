"""How much each parameter of a sweep matters, by Optuna."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from allranks.spec.sweep.search_space import Choice

# Fewer trials say nothing; more take too long.
_LEAST, _MOST = 10, 1000


def importances(
    space: Mapping[str, Any],
    goal: Literal["minimize", "maximize"],
    trials: Sequence[tuple[Mapping[str, Any], float]],
) -> dict[str, float]:
    """The importance of each parameter, from 0 to 1, the highest first; ``trials`` are parameters
    and values. Empty with too few trials or without Optuna. Nested parameters are left out."""
    if not _LEAST <= len(trials) <= _MOST or importlib.util.find_spec("optuna") is None:
        return {}
    import optuna  # lazy: large, and most views need none
    from optuna.distributions import CategoricalDistribution, FloatDistribution  # lazy: as above

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction=goal)
    plain = {name: parameter for name, parameter in space.items() if not _is_nested(parameter)}
    kinds: dict[str, Any] = {}
    for name, parameter in plain.items():
        if isinstance(parameter, Choice):
            kinds[name] = CategoricalDistribution(range(len(parameter.values)))
        else:
            drawn = [float(parameters[name]) for parameters, _ in trials]
            kinds[name] = FloatDistribution(min(drawn), max(drawn))
    for parameters, value in trials:
        numbers: dict[str, Any] = {}
        for name, parameter in plain.items():
            if isinstance(parameter, Choice):
                numbers[name] = parameter.values.index(parameters[name])
            else:
                numbers[name] = float(parameters[name])
        study.add_trial(optuna.trial.create_trial(value=value, params=numbers, distributions=kinds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental, and few values are a warning
        shares = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    return {name: round(float(share), 4) for name, share in shares.items()}


def _is_nested(space: Any) -> bool:
    return isinstance(space, Choice) and any(isinstance(value, Mapping) for value in space.values)
