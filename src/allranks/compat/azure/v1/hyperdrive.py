"""`azureml.train.hyperdrive`: sweeps."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.exceptions import UserErrorException, no_more
from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.compat.azure.v1.arguments import Bound
    from allranks.compat.azure.v1.run_config import ScriptRunConfig

_MINUTE = 60
# Azure's own limit, where the program gives none.
_MOST = 1000


class PrimaryMetricGoal:
    """Whether more is better."""

    MAXIMIZE, MINIMIZE = "maximize", "minimize"


def _space(kind: str, **bounds: Any) -> Document:
    return {"type": kind, **bounds}


def choice(*options: Any) -> Document:
    """One of these values."""
    values = (
        [*options[0]]
        if len(options) == 1
        and not isinstance(options[0], str)
        and (hasattr(options[0], "__iter__"))
        else [*options]
    )
    return _space("choice", values=values)


def uniform(min_value: float, max_value: float) -> Document:
    return _space("uniform", min_value=min_value, max_value=max_value)


def quniform(min_value: float, max_value: float, q: float) -> Document:
    return _space("quniform", min_value=min_value, max_value=max_value, q=q)


def loguniform(min_value: float, max_value: float) -> Document:
    """The exponential of a value between the bounds."""
    return _space("loguniform", min_value=min_value, max_value=max_value)


def qloguniform(min_value: float, max_value: float, q: float) -> Document:
    return _space("qloguniform", min_value=min_value, max_value=max_value, q=q)


def normal(mu: float, sigma: float) -> Document:
    return _space("normal", mu=mu, sigma=sigma)


def qnormal(mu: float, sigma: float, q: float) -> Document:
    return _space("qnormal", mu=mu, sigma=sigma, q=q)


def lognormal(mu: float, sigma: float) -> Document:
    return _space("lognormal", mu=mu, sigma=sigma)


def qlognormal(mu: float, sigma: float, q: float) -> Document:
    return _space("qlognormal", mu=mu, sigma=sigma, q=q)


def randint(upper: int) -> Document:
    """A whole number from 0 to below ``upper``."""
    return _space("randint", upper=upper)


class _Sampling:
    kind = "random"

    def __init__(
        self, parameter_space: Mapping[str, Any], properties: Mapping[str, Any] | None = None
    ) -> None:
        self.space = dict(parameter_space)
        self.properties = dict(properties or {})

    def algorithm(self) -> Document:
        seed = self.properties.get("seed")
        return {"type": self.kind, **({} if seed is None else {"seed": seed})}


class RandomParameterSampling(_Sampling):
    """At random; ``properties={"seed": 1}`` the same way each time."""


class GridParameterSampling(_Sampling):
    """Every combination of choices."""

    kind = "grid"


class BayesianParameterSampling(_Sampling):
    """By what earlier trials reached."""

    kind = "bayesian"


class _Policy:
    kind = ""

    def __init__(self, **keywords: Any) -> None:
        self.given = {key: value for key, value in keywords.items() if value is not None}

    def early_termination(self) -> Document | None:
        return {"type": self.kind, **self.given} if self.kind else None


class BanditPolicy(_Policy):
    """Ends trials that are worse than the best by more than a slack."""

    kind = "bandit"

    def __init__(
        self,
        evaluation_interval: int = 1,
        slack_factor: float | None = None,
        slack_amount: float | None = None,
        delay_evaluation: int = 0,
    ) -> None:
        super().__init__(
            evaluation_interval=evaluation_interval,
            slack_factor=slack_factor,
            slack_amount=slack_amount,
            delay_evaluation=delay_evaluation,
        )


class MedianStoppingPolicy(_Policy):
    """Ends trials that are worse than the median of running averages."""

    kind = "median_stopping"

    def __init__(self, evaluation_interval: int = 1, delay_evaluation: int = 0) -> None:
        super().__init__(evaluation_interval=evaluation_interval, delay_evaluation=delay_evaluation)


class TruncationSelectionPolicy(_Policy):
    """Ends the worst percentage of trials at each interval."""

    kind = "truncation_selection"

    def __init__(
        self,
        truncation_percentage: int,
        evaluation_interval: int = 1,
        delay_evaluation: int = 0,
        exclude_finished_jobs: bool | None = None,
    ) -> None:
        super().__init__(
            truncation_percentage=truncation_percentage,
            evaluation_interval=evaluation_interval,
            delay_evaluation=delay_evaluation,
            exclude_finished_jobs=exclude_finished_jobs,
        )


class NoTerminationPolicy(_Policy):
    """Every trial runs to its end."""


# The keys of a run's job that are the sweep's, beside its trial's.
_OF_SWEEPS = ("compute", "queue_settings", "inputs", "outputs")


class HyperDriveConfig:
    """A sweep over the hyperparameters of a ScriptRunConfig or an estimator."""

    def __init__(
        self,
        hyperparameter_sampling: _Sampling,
        primary_metric_name: str,
        primary_metric_goal: str,
        max_total_runs: int,
        max_concurrent_runs: int | None = None,
        max_duration_minutes: int = 10080,
        policy: _Policy | None = None,
        estimator: Any = None,
        run_config: Any = None,
        resume_from: Any = None,
        resume_child_runs: Any = None,
        pipeline: Any = None,
        **more: Any,
    ) -> None:
        no_more("HyperDriveConfig", more, ("debug_flag", "custom_run_id"))
        if resume_from or resume_child_runs or pipeline is not None:
            hint = "leave `resume_from`, `resume_child_runs` and `pipeline` out"
            raise UserErrorException("HyperDrive here starts new trials of a script", hint=hint)
        self.run_config = run_config if run_config is not None else estimator
        if self.run_config is None:
            raise UserErrorException("nothing to run", hint="give `run_config`")
        self.sampling, self.policy = hyperparameter_sampling, policy
        self.metric, self.goal = primary_metric_name, str(primary_metric_goal).lower()
        self.most, self.at_once = max_total_runs, max_concurrent_runs
        self.minutes = max_duration_minutes

    def script(self) -> ScriptRunConfig:
        """A copy of what its trials run."""
        script: ScriptRunConfig = getattr(self.run_config, "script_run_config", self.run_config)
        return copy.copy(script)

    def job(self, bound: Bound | None = None, config: ScriptRunConfig | None = None) -> Document:
        """The sweep, as a job file has it; ``config`` replaces what its trials run."""
        job = dict(self.run_config.job() if config is None else config.job(bound))
        space, words = {}, []
        for key, value in self.sampling.space.items():
            name = identifier(key)
            space[name] = value
            option = key if key.startswith("-") else f"--{key}"
            words += [shlex.quote(option), f"'${{{{search_space.{name}}}}}'"]
        limits: Document = {"max_total_trials": self.most or _MOST}
        limits["timeout"] = self.minutes * _MINUTE
        if self.at_once:
            limits["max_concurrent_trials"] = self.at_once
        trial = ("code", "environment", "environment_variables", "distribution", "resources")
        sweep: Document = {
            "type": "sweep",
            "trial": {key: job[key] for key in trial if key in job},
            "sampling_algorithm": self.sampling.algorithm(),
            "search_space": space,
            "objective": {"goal": self.goal, "primary_metric": self.metric},
            "limits": limits,
            **{key: job[key] for key in _OF_SWEEPS if key in job},
        }
        sweep["trial"]["command"] = " ".join([job["command"], *words])
        if self.policy is not None and (early := self.policy.early_termination()):
            sweep["early_termination"] = early
        return sweep


HyperDriveRunConfig = HyperDriveConfig
