"""A job's definition: Azure ML v2's commandJob and a few keys of ours. YAML, the SDK and the
command line all use ``parse``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from allranks.errors import Problem, SpecError
from allranks.spec.fields.metric_formats import BUILTIN, KNOWN
from allranks.spec.fields.problems import nearest, placed, problems
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
    def parse(
        cls,
        data: Mapping[str, Any],
        lines: Mapping[str, int] | None = None,
        file: str | None = None,
    ) -> Self:
        """The job in ``data``; ``lines`` has the line of each dotted key in ``file``.

        Raises one SpecError with all problems.
        """
        lines = lines or {}
        # An empty section in YAML (`tags:`) counts as absent.
        values = {k: v for k, v in data.items() if v is not None and k not in READ_ONLY}
        try:
            job = cls.model_validate(values)
        except ValidationError as error:
            errors = problems(error, values, MODELS)
            raise SpecError([placed(p, lines) for p in errors], file=file) from None
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.end]
            message = f"{half!r} is an incomplete character"
            raise SpecError(Problem(message, hint="correct or remove it"), file=file) from None
        if crossed := [placed(problem, lines) for problem in _crossed(job)]:
            raise SpecError(crossed, file=file)
        return job


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> CommandJob:
    """The job in ``data``: see ``CommandJob.parse``."""
    return CommandJob.parse(data, lines, file)


# The valid keys at each place; `*` is a name chosen by the user.
MODELS: Mapping[str, tuple[type[BaseModel], ...]] = {
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
# Keys that `az ml job show` prints and `az ml job create` ignores.
READ_ONLY = frozenset({"id", "status", "creation_context", "log_files", "parameters"})


def _crossed(job: CommandJob) -> Iterator[Problem]:
    """Checks across keys: references, and counts that must agree."""
    defined = {
        "name",
        *(f"inputs.{name}" for name in job.inputs),
        *(f"outputs.{name}" for name in job.outputs),
        *(f"search_space.{name}" for name in job.search_space),
    }
    yield from unknown_references(job.command, defined, "command")
    for name, value in job.environment_variables.items():
        yield from unknown_references(value, defined, f"environment_variables.{name}")
    for name, output in job.outputs.items():
        yield from unknown_references(
            output.path or "", {"name", "default_datastore"}, f"outputs.{name}.path"
        )
    yield from _unknown_metrics(job.metrics)
    if job.retry.max_attempts == 1 and job.retry.budgets != Budgets():
        yield Problem(
            "`budgets` has no effect with `max_attempts: 1`",
            where="retry.budgets",
            hint="set `retry.max_attempts` to 2 or more; `on: [preempted]` excludes other causes",
        )
    if job.session is not None and job.inside is not None:
        hint = "leave out one of them"
        yield Problem("a session is not inside of another", where="inside", hint=hint)
    nodes, distribution = job.resources.instance_count, job.distribution
    if isinstance(distribution, TensorFlowDistribution):
        workers = distribution.worker_count
        if workers not in (None, nodes):
            yield Problem(
                f"`worker_count` is {workers} for {nodes} instances; each instance runs one worker",
                where="distribution.worker_count",
                hint=f"remove it, or set `resources.instance_count: {workers}`",
            )


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
