"""The keys that several kinds of jobs share: each is declared here once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
)
from pydantic_core import CoreSchema, core_schema

from allranks.errors import Problem
from allranks.spec.base_job import BaseJob
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import Models, validated, without_none
from allranks.spec.fields.scalars import (
    DataName,
    EmptyableText,
    JobName,
    Module,
    PathText,
    Seconds,
    Several,
    Text,
    Texts,
    Variable,
    Wrong,
)
from allranks.spec.job_parts import (
    Distribution,
    Environment,
    Input,
    Metric,
    MetricName,
    OnFailure,
    Output,
    Pattern,
    QueueSettings,
    Resources,
    as_input,
)
from allranks.spec.retry import Retry
from allranks.spec.services import Identity


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
    if value == "current" or re.fullmatch(r"azureml:[^\s]+|file:.+", value):
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


# Keys that `az ml job show` prints and `az ml job create` ignores.
READ_ONLY = frozenset({"id", "status", "creation_context", "log_files", "parameters"})


class JobKeys(BaseJob):
    """What command, sweep and pipeline jobs have in common."""

    schema_: Text | None = Field(default=None, alias="$schema")
    name: JobName | None = None
    display_name: Text | None = None
    description: Text | None = None
    experiment_name: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    compute: Text | None = None
    inputs: dict[DataName, AnyInput] = Field(default_factory=dict)
    outputs: Outputs = Field(default_factory=Outputs)
    identity: Identity | None = None
    queue_settings: QueueSettings = Field(default_factory=QueueSettings)

    @classmethod
    def parse(
        cls,
        data: Mapping[str, Any],
        lines: Mapping[str, int] | None = None,
        file: str | None = None,
    ) -> Self:
        """The job in ``data``; ``lines`` has the line of each dotted key in ``file``. Steps of a
        pipeline are checked by ``steps_of``, when their components are there.

        Raises one SpecError with all problems.
        """
        values = {key: v for key, v in without_none(data).items() if key not in READ_ONLY}
        return validated(cls, values, cls._models(), lines, file, cls._across)

    @classmethod
    def _models(cls) -> Models:
        """The valid keys at each place; `*` is a name chosen by the user."""
        raise NotImplementedError

    def _across(self) -> Iterable[Problem]:
        """What no single key can know."""
        raise NotImplementedError


class RankKeys(Part):
    """How ranks run: in a command job, a sweep's trial, a command component, and the step of a
    component, which changes it."""

    environment: AnyEnvironment | None = None
    environment_variables: dict[Variable, EmptyableText] = Field(default_factory=dict)
    resources: Resources = Field(default_factory=Resources)
    distribution: Distribution | None = None
    metrics: dict[MetricName, AnyMetric] = Field(default_factory=dict)
    keep_work: Text | None = None
    warm: Several[Module] = ()
    retry: Retry = Field(default_factory=Retry)
    hang_timeout: Seconds | None = None
    flight_recorder: bool = True
    on_failure: OnFailure | None = None


class CommandKeys(RankKeys):
    """What ranks run, and how."""

    command: Annotated[Text, Field(min_length=1)]
    code: PathText | None = None
