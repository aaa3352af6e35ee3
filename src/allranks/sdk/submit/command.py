"""The command job of Python programs: it can be called with other inputs, and swept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from allranks.sdk.submit.nodes import Node, is_building
from allranks.sdk.submit.pipeline import anchored
from allranks.spec.fields.base import plain
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import Resources
from allranks.spec.sweep.build import build_sweep
from allranks.spec.sweep.job import SweepJob
from allranks.spec.sweep.search_space import DISTRIBUTIONS

if TYPE_CHECKING:
    from allranks.api.common import Document


class Command(CommandJob):
    """A command job, as ``command`` and ``load_job`` return it."""

    # Distributions given for inputs, until `sweep` makes a search space of them.
    _space: Document = PrivateAttr(default_factory=dict)

    def __call__(self, **inputs: Any) -> Any:
        """The same job with other inputs; in a function with ``@pipeline`` a step of it. A
        distribution of ``allranks.sweep``, such as ``Uniform(…)``, makes the input a parameter for
        ``sweep``. Raises SpecError."""
        if is_building():
            return self._as_step(inputs)
        space = {name: value for name, value in inputs.items() if isinstance(value, DISTRIBUTIONS)}
        fixed = {name: value for name, value in inputs.items() if name not in space}
        kept = {name: value for name, value in self.inputs.items() if name not in space}
        made = self.model_copy(update={"name": None})
        made._space = {**self._space, **space}
        made.inputs = {**kept, **fixed}
        return made

    def _as_step(self, inputs: Mapping[str, Any]) -> Node:
        data = self.to_dict()
        if self.base is not None:
            data = anchored(data, Path(self.base))
        left_out = ("name", "inputs", "outputs", "experiment_name", "parent_job_name")
        job = {key: value for key, value in data.items() if key not in left_out}
        values = {**{name: plain(value) for name, value in self.inputs.items()}, **inputs}
        own = re.sub(r"\W", "_", self.name or "").lower()
        step = Node({"type": "command", **job}, values, [*self.outputs], own or "step")
        for name, output in self.outputs.items():
            setattr(step.outputs, name, output)
        return step

    def set_resources(self, **keys: Any) -> None:
        """As azure.ai.ml's: set keys of ``resources``."""
        self.resources = Resources(**{**self.resources.model_dump(), **keys})

    def set_limits(self, *, timeout: float) -> None:
        """As azure.ai.ml's: set the time limit in seconds."""
        self.limits = self.limits.model_copy(update={"timeout": timeout})

    def sweep(self, *, primary_metric: str, goal: str, **keywords: Any) -> SweepJob:
        """A sweep over the parameters given by calling the job, or by ``search_space``: the job
        runs once for each trial.

        ``goal`` is `minimize` or `maximize`. Other keywords are those of azure.ai.ml:
        ``sampling_algorithm``, ``max_total_trials`` (required unless a grid),
        ``max_concurrent_trials``, ``timeout`` and ``trial_timeout`` (seconds),
        ``early_termination_policy``, ``search_space``, ``compute``, and keys of the sweep job.
        Raises SpecError.
        """
        return build_sweep(self, self._space, primary_metric, goal, keywords)
