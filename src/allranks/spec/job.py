"""A job's definition: Azure ML v2's commandJob and a few keys of ours. YAML, the SDK and the
command line all use ``parse``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from allranks.errors import Problem, SpecError
from allranks.spec.base_job import BaseJob
from allranks.spec.fields.patterns import BUILTIN, KNOWN
from allranks.spec.fields.problems import nearest, placed, problems
from allranks.spec.fields.scalars import (
    DataName,
    EmptyableText,
    Module,
    Name,
    PathText,
    Seconds,
    Several,
    Text,
    Texts,
    Variable,
    Wrong,
)
from allranks.spec.job_parts import (
    BuildContext,
    Distribution,
    Environment,
    Input,
    Limits,
    Metric,
    MetricName,
    Output,
    Pattern,
    QueueSettings,
    Resources,
    TensorFlowDistribution,
    as_input,
    snake,
)
from allranks.spec.retry import Budgets, Retry
from allranks.spec.services import IDENTITIES, SERVICES, AnyService, Identity
from allranks.spec.shell.expressions import references, unknown


def _form(value: object) -> str:
    return "object" if isinstance(value, Mapping | BaseModel) else "literal"


def _empty_if_none(value: object) -> object:
    return {} if value is None else value


def _unwrapped(value: object) -> object:
    """Unwrap Azure ML's ``{value: 3}``. An output of another job becomes an input."""
    if isinstance(value, Mapping) and value.keys() == {"value"}:
        return value["value"]
    return as_input(value) if isinstance(value, Output) else value


def _environment(value: str) -> str:
    if value == "current" or re.fullmatch(r"azureml:[^\s]+", value):
        return value
    # Azure's own Python examples leave the prefix out.
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*([:@][\w.-]+)?", value):
        return f"azureml:{value}"
    hint = "write `azureml:NAME:VERSION`, or `current` for the current Python"
    raise Wrong(f"`{value}` is not an environment", hint)


Literal_ = bool | int | Annotated[float, Field(allow_inf_nan=False)] | str
AnyInput = Annotated[
    Annotated[Input, Tag("object")] | Annotated[Literal_, Tag("literal")],
    Discriminator(_form),
    BeforeValidator(_unwrapped),
]
AnyEnvironment = Annotated[
    Annotated[Environment, Tag("object")]
    | Annotated[Text, AfterValidator(_environment), Tag("literal")],
    Discriminator(_form),
]
AnyMetric = Annotated[
    Annotated[Metric, Tag("object")] | Annotated[Pattern, Tag("literal")], Discriminator(_form)
]
AnyOutput = Annotated[Output, BeforeValidator(_empty_if_none)]


class Outputs(dict[str, Output]):
    """Outputs by name, as keys and as attributes: ``job.outputs.model``."""

    def __getattr__(self, name: str) -> Output:
        try:
            return self[name]
        except KeyError:
            has = ", ".join(self) or "none"
            raise AttributeError(f"output {name!r} not found; the outputs are: {has}") from None

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, handler(dict[DataName, AnyOutput]))


class CommandJob(BaseJob):
    """One command on ``resources.instance_count`` nodes. Made by ``parse``."""

    schema_: Text | None = Field(default=None, alias="$schema")
    type: Annotated[Literal["command"], BeforeValidator(snake)] = "command"
    name: Name | None = None
    display_name: Text | None = None
    description: Text | None = None
    experiment_name: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    command: Annotated[Text, Field(min_length=1)]
    code: PathText | None = None
    environment: AnyEnvironment | None = None
    environment_variables: dict[Variable, EmptyableText] = Field(default_factory=dict)
    compute: Text | None = None
    resources: Resources = Field(default_factory=Resources)
    distribution: Distribution | None = None
    limits: Limits = Field(default_factory=Limits)
    inputs: dict[DataName, AnyInput] = Field(default_factory=dict)
    outputs: Outputs = Field(default_factory=Outputs)
    services: dict[Text, AnyService] = Field(default_factory=dict)
    identity: Identity | None = None
    queue_settings: QueueSettings = Field(default_factory=QueueSettings)
    parent_job_name: Text | None = None
    search_space: dict[DataName, Any] = Field(default_factory=dict)
    metrics: dict[MetricName, AnyMetric] = Field(default_factory=dict)
    state: Name | None = None
    keep_work: Text | None = None
    warm: Several[Module] = ()
    retry: Retry = Field(default_factory=Retry)
    hang_timeout: Seconds | None = None

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
        given = {k: v for k, v in data.items() if v is not None and k not in READ_ONLY}
        try:
            job = cls.model_validate(given)
        except ValidationError as error:
            found = problems(error, given, MODELS)
            raise SpecError([placed(p, lines) for p in found], file=file) from None
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.end]
            said = f"{half!r} is an incomplete character"
            raise SpecError(Problem(said, hint="correct or remove it"), file=file) from None
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
    "metrics.*": (Metric,),
    "queue_settings": (QueueSettings,),
    "services.*": SERVICES,
    "identity": IDENTITIES,
}
# Keys that `az ml job show` prints and `az ml job create` ignores.
READ_ONLY = frozenset({"id", "status", "creation_context", "log_files", "parameters"})


def _crossed(job: CommandJob) -> Iterator[Problem]:
    """Checks across keys: references, and counts that must agree."""
    known = {
        "name",
        *(f"inputs.{name}" for name in job.inputs),
        *(f"outputs.{name}" for name in job.outputs),
        *(f"search_space.{name}" for name in job.search_space),
    }
    yield from unknown_references(job.command, known, "command")
    for name, value in job.environment_variables.items():
        yield from unknown_references(value, known, f"environment_variables.{name}")
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
            known = ", ".join(f"`{each}`" for each in KNOWN)
            hint = nearest(name, KNOWN) or f"built-in metrics are {known}; or write a pattern"
            yield Problem(f"`{name}` is not a built-in metric", where=f"metrics.{name}", hint=hint)


def unknown_references(text: str, known: set[str], where: str) -> Iterator[Problem]:
    """The references in ``text`` to names that are not in ``known``."""
    try:
        always = references(text, optional=False)
        all_of_them = references(text)
    except SpecError as error:
        yield from (problem._replace(where=where) for problem in error.problems)
        return
    for name in dict.fromkeys(all_of_them):
        if name in known or (name.startswith("inputs.") and name not in always):
            continue
        family = name.partition(".")[0]
        problem = unknown(name, known, where=where)
        inside = any(each.startswith(f"{family}.") for each in known)
        if family in ("search_space", "parent") and not inside:
            owner = "sweep" if family == "search_space" else "pipeline"
            hint = f"`{family}` exists only inside a {owner} job: use `inputs` here"
            problem = problem._replace(hint=hint)
        yield problem
