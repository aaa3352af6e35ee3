"""A job's definition: Azure ML v2's commandJob and a few keys of ours. YAML, the SDK and the
command line all use ``parse``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from allranks.errors import Problem, SpecError
from allranks.spec.fields.metric_formats import BUILTIN, KNOWN
from allranks.spec.fields.problems import Models, nearest
from allranks.spec.fields.scalars import DataName, Name, Text
from allranks.spec.job_keys import CommandKeys, JobKeys
from allranks.spec.job_parts import (
    BuildContext,
    Environment,
    Input,
    Limits,
    Metric,
    OnFailure,
    Output,
    QueueSettings,
    Resources,
    Session,
    TensorFlowDistribution,
    snake,
)
from allranks.spec.retry import Budgets, Retry
from allranks.spec.services import IDENTITIES, SERVICES, AnyService
from allranks.spec.shell.expressions import references, unknown


class CommandJob(CommandKeys, JobKeys):
    """One command on ``resources.instance_count`` nodes. Made by ``parse``."""

    type: Annotated[Literal["command"], BeforeValidator(snake)] = "command"
    limits: Limits = Field(default_factory=Limits)
    services: dict[Text, AnyService] = Field(default_factory=dict)
    parent_job_name: Text | None = None
    search_space: dict[DataName, Any] = Field(default_factory=dict)
    state: Name | None = None
    session: Session | None = None
    inside: Name | None = None

    @classmethod
    def _models(cls) -> Models:
        return MODELS

    def _across(self) -> Iterator[Problem]:
        """Checks across keys: references, and counts that must agree."""
        defined = {
            "name",
            *(f"inputs.{name}" for name in self.inputs),
            *(f"outputs.{name}" for name in self.outputs),
            *(f"search_space.{name}" for name in self.search_space),
        }
        yield from unknown_references(self.command, defined, "command")
        for name, value in self.environment_variables.items():
            yield from unknown_references(value, defined, f"environment_variables.{name}")
        for name, output in self.outputs.items():
            yield from unknown_references(
                output.path or "", {"name", "default_datastore"}, f"outputs.{name}.path"
            )
        yield from _unknown_metrics(self.metrics)
        if self.retry.max_attempts == 1 and self.retry.budgets != Budgets():
            yield Problem(
                "`budgets` has no effect with `max_attempts: 1`",
                where="retry.budgets",
                hint="set `retry.max_attempts` to 2 or more; `on: [preempted]` excludes other "
                "causes",
            )
        if self.session is not None and self.inside is not None:
            hint = "leave out one of them"
            yield Problem("a session is not inside of another", where="inside", hint=hint)
        nodes, distribution = self.resources.instance_count, self.distribution
        if isinstance(distribution, TensorFlowDistribution):
            workers = distribution.worker_count
            if workers not in (None, nodes):
                why = "each instance runs one worker"
                yield Problem(
                    f"`worker_count` is {workers} for {nodes} instances; {why}",
                    where="distribution.worker_count",
                    hint=f"remove it, or set `resources.instance_count: {workers}`",
                )


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> CommandJob:
    """The job in ``data``: see ``CommandJob.parse``."""
    return CommandJob.parse(data, lines, file)


# The valid keys at each place; `*` is a name chosen by the user.
MODELS: Models = {
    "": (CommandJob,),
    "inputs.*": (Input,),
    "outputs.*": (Output,),
    "environment": (Environment,),
    "environment.build": (BuildContext,),
    "resources": (Resources,),
    "limits": (Limits,),
    "retry": (Retry,),
    "retry.budgets": (Budgets,),
    "on_failure": (OnFailure,),
    "session": (Session,),
    "metrics.*": (Metric,),
    "queue_settings": (QueueSettings,),
    "services.*": SERVICES,
    "identity": IDENTITIES,
}


def _unknown_metrics(metrics: Mapping[str, Metric | str]) -> Iterator[Problem]:
    for name, metric in metrics.items():
        pattern = metric.pattern if isinstance(metric, Metric) else metric
        if pattern == BUILTIN and name not in KNOWN:
            listed = ", ".join(f"`{choice}`" for choice in KNOWN)
            hint = nearest(name, KNOWN) or f"built-in metrics are {listed}; or write a pattern"
            yield Problem(f"`{name}` is not a built-in metric", where=f"metrics.{name}", hint=hint)


def unknown_references(text: str, defined: set[str], where: str) -> Iterator[Problem]:
    """The references in ``text`` to names that are not in ``defined``."""
    try:
        always = references(text, optional=False)
        all_of_them = references(text)
    except SpecError as error:
        yield from (problem._replace(where=where) for problem in error.problems)
        return
    for name in dict.fromkeys(all_of_them):
        if name in defined or (name.startswith("inputs.") and name not in always):
            continue
        family = name.partition(".")[0]
        problem = unknown(name, defined, where=where)
        inside = any(other.startswith(f"{family}.") for other in defined)
        if family in ("search_space", "parent") and not inside:
            owner = "sweep" if family == "search_space" else "pipeline"
            hint = f"`{family}` exists only inside a {owner} job: use `inputs` here"
            problem = problem._replace(hint=hint)
        yield problem
