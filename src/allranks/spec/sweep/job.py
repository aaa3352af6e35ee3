"""The sweep job: Azure ML v2's sweepJob, with ``asha`` beside Azure's sampling algorithms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from allranks.errors import Problem, SpecError
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import Models
from allranks.spec.fields.scalars import Count, DataName, Integer, Seconds, Text
from allranks.spec.job import MODELS, unknown_references
from allranks.spec.job_keys import CommandKeys, JobKeys
from allranks.spec.job_parts import Resources, snake, typed
from allranks.spec.retry import Retry
from allranks.spec.services import AnyService
from allranks.spec.sweep.early_termination import POLICIES, EarlyTermination
from allranks.spec.sweep.search_space import DISTRIBUTIONS, Choice, Distribution, names_of

Seed = Annotated[Integer, Field(ge=0, lt=2**32)]


class RandomSampling(Part):
    """Draws each trial by itself. ``sobol`` spreads the draws evenly. ``logbase`` is the base of
    `loguniform` and `qloguniform` bounds: a number, or `e`."""

    type: Literal["random"] = "random"
    seed: Seed | None = None
    rule: Annotated[Literal["random", "sobol"], BeforeValidator(snake)] = "random"
    logbase: Annotated[float, Field(gt=1)] | Literal["e"] | None = None


class GridSampling(Part):
    """Takes every combination of the values of choices."""

    type: Literal["grid"] = "grid"


class BayesianSampling(Part):
    """Draws where the results of earlier trials promise the best."""

    type: Literal["bayesian"] = "bayesian"
    seed: Seed | None = None


class AshaSampling(Part):
    """Draws at random and stops all but the best of each ``reduction_factor`` trials at rungs of
    ``min_resource`` × ``reduction_factor`` ** n reports (asynchronous successive halving)."""

    type: Literal["asha"] = "asha"
    seed: Seed | None = None
    min_resource: Count = 1
    reduction_factor: Annotated[Integer, Field(ge=2)] = 3


def _named(value: object) -> object:
    """``random`` stands for ``{type: random}``."""
    return {"type": snake(value)} if isinstance(value, str) else typed(value)


SamplingAlgorithm = Annotated[
    RandomSampling | GridSampling | BayesianSampling | AshaSampling,
    Field(discriminator="type"),
    BeforeValidator(_named),
]


class Objective(Part):
    """The metric that trials are compared by."""

    goal: Annotated[Literal["minimize", "maximize"], BeforeValidator(snake)]
    primary_metric: Text


# The number of trials of a sweep that is built in Python, until its limits are set.
LATER = 2**31 - 1


class SweepLimits(Part):
    """``timeout`` is for the whole sweep, ``trial_timeout`` for each trial, both in seconds."""

    max_total_trials: Count
    max_concurrent_trials: Count | None = None
    timeout: Seconds | None = None
    trial_timeout: Seconds | None = None


class Trial(CommandKeys):
    """What every trial of a sweep runs. Metrics, retries, the working folder, the hang timeout and
    warm starts are ours."""


class SweepJob(JobKeys):
    """Many trials of one command with different parameters. Made by ``SweepJob.parse``. Without an
    ``objective`` it is an array: all combinations of a grid run, and none is the best."""

    type: Annotated[Literal["sweep"], BeforeValidator(snake)] = "sweep"
    trial: Trial
    sampling_algorithm: SamplingAlgorithm = Field(default_factory=RandomSampling)
    search_space: Annotated[dict[DataName, Distribution], Field(min_length=1)]
    objective: Objective | None = None
    limits: SweepLimits
    early_termination: EarlyTermination | None = None
    services: dict[Text, AnyService] = Field(default_factory=dict)
    resources: Resources | None = None
    reuse_nodes: bool = True

    @property
    def goal(self) -> Literal["minimize", "maximize"]:
        return self.objective.goal if self.objective is not None else "minimize"

    @property
    def metric(self) -> str:
        """The primary metric; empty without an objective."""
        return self.objective.primary_metric if self.objective is not None else ""

    @property
    def policy(self) -> EarlyTermination | AshaSampling | None:
        """What stops trials early."""
        algorithm = self.sampling_algorithm
        return algorithm if isinstance(algorithm, AshaSampling) else self.early_termination

    @property
    def trial_resources(self) -> Resources:
        """What each trial asks of the compute."""
        own = self.trial.resources
        return self.resources if self.resources is not None and own == Resources() else own

    def set_limits(
        self,
        *,
        max_total_trials: int | None = None,
        max_concurrent_trials: int | None = None,
        timeout: float | None = None,
        trial_timeout: float | None = None,
    ) -> None:
        """Change limits; those not given stay. Times in seconds. Raises SpecError."""
        limits = {
            "max_total_trials": max_total_trials,
            "max_concurrent_trials": max_concurrent_trials,
            "timeout": timeout,
            "trial_timeout": trial_timeout,
        }
        kept = self.limits.model_dump(exclude_none=True)
        changed = kept | {key: value for key, value in limits.items() if value is not None}
        self.limits = type(self).parse({**dict(self), "limits": changed}).limits

    @classmethod
    def _models(cls) -> Models:
        return _MODELS

    def _across(self) -> Iterator[Problem]:
        defined = {
            "name",
            *(f"inputs.{name}" for name in self.inputs),
            *(f"outputs.{name}" for name in self.outputs),
            *(f"search_space.{name}" for name in names_of(self.search_space)),
        }
        yield from unknown_references(self.trial.command, defined, "trial.command")
        for name, value in self.trial.environment_variables.items():
            yield from unknown_references(value, defined, f"trial.environment_variables.{name}")
        if self.sampling_algorithm.type == "grid":
            for name, parameter in self.search_space.items():
                if not isinstance(parameter, Choice):
                    yield Problem(
                        f"a grid needs choices, and `{name}` is `{parameter.type}`",
                        where=f"search_space.{name}",
                        hint="write `type: choice` with `values`, or use "
                        "`sampling_algorithm: random`",
                    )
        if self.objective is None and (
            self.sampling_algorithm.type != "grid" or self.early_termination is not None
        ):
            yield Problem(
                "missing: only a grid without early termination runs without it",
                where="objective",
                hint="objective: {goal: minimize, primary_metric: loss}; or "
                "`sampling_algorithm: grid`",
            )
        early = {"bayesian": "it learns from complete trials", "asha": "it stops trials itself"}
        if (kind := self.sampling_algorithm.type) in early and self.early_termination is not None:
            yield Problem(
                f"{kind} sampling has no early termination: {early[kind]}",
                where="early_termination",
                hint="leave it out, or use `sampling_algorithm: random`",
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON data without default values; ``parse`` restores the sweep from it. Raises SpecError
        for one that was built in Python without a number of trials."""
        if self.limits.max_total_trials == LATER:
            hint = "sweep_job.set_limits(max_total_trials=…)"
            raise SpecError(Problem("the number of trials is missing", "limits", hint=hint))
        return {"type": "sweep", **super().to_dict()}

    def trial_spec(self, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The command job of the trial ``name`` with these values of the search space."""
        data = self.to_dict()
        shared = {key: data[key] for key in _SHARED if key in data}
        trial = data["trial"]
        if self.resources is not None and "resources" not in trial:
            trial["resources"] = data["resources"]
        spec: dict[str, Any] = {
            **shared,
            **trial,
            "type": "command",
            "name": name,
            "parent_job_name": self.name,
            "search_space": dict(parameters),
        }
        if "retry" not in trial:
            # A trial that is lost with its node is not a bad trial.
            spec["retry"] = {"max_attempts": _ATTEMPTS, "on": ["node_lost", "preempted"]}
        if self.limits.trial_timeout is not None:
            spec["limits"] = {"timeout": self.limits.trial_timeout}
        return spec


# How often a trial is started that is lost with its node.
_ATTEMPTS = 3
# The keys of a sweep that its trials have too.
_SHARED = JobKeys.model_fields.keys() - {"schema_", "name", "display_name", "description"}
_MODELS: Models = {
    **MODELS,
    "": (SweepJob,),
    "trial": (Trial,),
    "trial.resources": (Resources,),
    "trial.retry": (Retry,),
    "objective": (Objective,),
    "limits": (SweepLimits,),
    "sampling_algorithm": (RandomSampling, GridSampling, BayesianSampling, AshaSampling),
    "early_termination": POLICIES,
    "search_space.*": DISTRIBUTIONS,
}


def default_trials(sweep: Mapping[str, Any]) -> int | None:
    """The size of a flat grid in a sweep's data; None for other sampling."""
    algorithm = sweep.get("sampling_algorithm")
    kind = algorithm.get("type") if isinstance(algorithm, Mapping) else algorithm
    if getattr(kind, "type", kind) != "grid":
        return None
    return math.prod(len(choice.get("values") or [1]) for choice in sweep["search_space"].values())
