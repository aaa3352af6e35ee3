"""Components: steps of pipelines in files of their own, with declared inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from allranks.errors import Problem, SpecError
from allranks.spec.base_job import BaseJob
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import nearest, placed, validated, without_none
from allranks.spec.fields.scalars import DataName, Name, PathText, Several, Text, Texts, sendable
from allranks.spec.job import MODELS, unknown_references
from allranks.spec.job_keys import CommandKeys, Literal_
from allranks.spec.job_parts import AssetType, Environment, InputMode, Limits, OutputMode, snake
from allranks.spec.pipeline.parallel import (
    ParallelKeys,
    ParallelTask,
    RetrySettings,
    command_job,
)
from allranks.spec.retry import Budgets, Retry

LITERALS = ("number", "integer", "string", "boolean")


def is_data(declared: Mapping[str, Any]) -> bool:
    """Whether a declared input is data, not a literal."""
    return declared.get("type", "uri_folder") not in LITERALS


InputType = Annotated[
    Literal["number", "integer", "string", "boolean"] | AssetType, BeforeValidator(snake)
]


def _none_is_empty(value: object) -> object:
    return {} if value is None else value


class ComponentInput(Part):
    """What a step needs: a number, an integer, a string or a boolean, or data. An ``optional``
    input may be left out; `$[[ ]]` in the command drops what refers to it."""

    type: InputType = "uri_folder"
    description: Text | None = None
    optional: bool = False
    default: Literal_ | None = None
    min: float | None = None
    max: float | None = None
    enum: list[Literal_] | None = None
    mode: InputMode | None = None


class ComponentOutput(Part):
    """What a step writes."""

    type: AssetType = "uri_folder"
    description: Text | None = None
    mode: OutputMode | None = None


Inputs = dict[DataName, Annotated[ComponentInput, BeforeValidator(_none_is_empty)]]
ComponentOutputs = dict[DataName, Annotated[ComponentOutput, BeforeValidator(_none_is_empty)]]


class Component(BaseJob):
    """What all components have in common. ``snapshot`` is the digest of the code, once sent."""

    schema_: Text | None = Field(default=None, alias="$schema")
    name: Name | None = None
    version: Name | None = None
    display_name: Text | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    inputs: Inputs = Field(default_factory=dict)
    outputs: ComponentOutputs = Field(default_factory=dict)
    is_deterministic: bool = True


class CommandComponent(CommandKeys, Component):
    """A component that runs a command."""

    type: Annotated[Literal["command"], BeforeValidator(snake)] = "command"
    additional_includes: Several[PathText] = ()
    snapshot: Text | None = None
    limits: Limits = Field(default_factory=Limits)


class PipelineComponent(Component):
    """A component whose steps are jobs."""

    type: Annotated[Literal["pipeline"], BeforeValidator(snake)] = "pipeline"
    jobs: Annotated[dict[str, dict[str, Any]], Field(min_length=1), BeforeValidator(sendable)]
    settings: dict[str, Any] = Field(default_factory=dict)


class ParallelComponent(Component, ParallelKeys):
    """A component that runs an entry script on many files."""

    type: Annotated[Literal["parallel"], BeforeValidator(snake)] = "parallel"


AnyComponent = CommandComponent | PipelineComponent | ParallelComponent
_TYPES: Mapping[str, type[AnyComponent]] = {
    "command": CommandComponent,
    "parallel": ParallelComponent,
    "pipeline": PipelineComponent,
}
_MODELS: Mapping[str, tuple[type[BaseModel], ...]] = {
    **{key: MODELS[key] for key in ("environment.build", "resources", "limits", "metrics.*")},
    "on_failure": MODELS["on_failure"],
    "environment": (Environment,),
    "inputs.*": (ComponentInput,),
    "outputs.*": (ComponentOutput,),
    "retry": (Retry,),
    "retry.budgets": (Budgets,),
    "task": (ParallelTask,),
    "task.environment": (Environment,),
    "retry_settings": (RetrySettings,),
}


def component_type(data: Mapping[str, Any]) -> str:
    """The type of a component's data; `command` by default."""
    if data.get("type") is not None:
        return str(snake(data["type"]))
    schema = str(data.get("$schema") or "").lower().replace("_", "")
    if "/flow." in schema or ("environment" in data and {"nodes", "flow"} & {*data}):
        return "flow"
    kinds = {kind.replace("_", ""): kind for kind in (*_TYPES, *_REFUSED)}
    return next((kinds[kind] for kind in kinds if f"{kind}component" in schema), "command")


# Azure's other types of components.
_REFUSED = {
    "flow": "prompt flow",
    "automl": "AutoML",
    "spark": "Spark",
    "import": "import",
    "data_transfer": "data transfer",
}


def parse_component(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> AnyComponent:
    """The component in ``data``. Raises one SpecError with everything that is wrong."""
    lines = lines or {}
    kind = component_type(data)
    model = _TYPES.get(kind)
    if model is None:
        hint = nearest(kind, _TYPES) or "the types are `command`, `parallel` and `pipeline`"
        problem = Problem(f"`{kind}` is not a type of component", "type", hint=hint)
        if kind in _REFUSED:
            hint = "run it from a command component"
            problem = Problem(f"{_REFUSED[kind]} components do not run here", "type", hint=hint)
        raise SpecError(placed(problem, lines), file=file)
    values = {**without_none(data), "type": kind}
    return validated(model, values, {**_MODELS, "": (model,)}, lines, file, _across)


def with_components(data: Any, find: Callable[[str, str], Mapping[str, Any]], at: str = "") -> Any:
    """A pipeline's data with registered components instead of their names. ``find`` gets a
    reference and its key, and raises SpecError."""
    if not isinstance(data, Mapping):
        return data
    made = dict(data)
    for key in ("component", "trial"):
        where = f"{at}.{key}" if at else key
        if isinstance(made.get(key), str):
            made[key] = find(made[key], where)
        if isinstance(made.get(key), Mapping):
            made[key] = with_components(made[key], find, where)
    if isinstance(made.get("jobs"), Mapping):
        where = f"{at}.jobs" if at else "jobs"
        made["jobs"] = {
            name: with_components(node, find, f"{where}.{name}")
            for name, node in made["jobs"].items()
        }
    return made


def _across(made: AnyComponent) -> list[Problem]:
    errors: list[Problem] = []
    for name, declared in made.inputs.items():
        where = f"inputs.{name}"
        if declared.type not in LITERALS:
            if declared.default is not None:
                hint = "give the data where the component is used"
                errors.append(Problem("data has no default", f"{where}.default", hint=hint))
            continue
        if declared.default is None:
            continue
        try:
            literal(declared.default, declared, f"{where}.default")
        except SpecError as error:
            errors += error.problems
    defined = {"name", *(f"inputs.{e}" for e in made.inputs)}
    defined |= {f"outputs.{name}" for name in made.outputs}
    if isinstance(made, CommandComponent):
        errors += unknown_references(made.command, defined, "command")
    if isinstance(made, ParallelComponent):
        try:
            command = str(command_job(made)["command"])
        except SpecError as error:
            return [*errors, *error.problems]
        errors += unknown_references(command, defined, "task.program_arguments")
    return errors


def literal(value: Any, of: ComponentInput, where: str) -> Any:
    """A value of an input with a literal type, converted to it. Raises SpecError if it is not of
    that type, or outside of ``min``, ``max`` and ``enum``."""
    made = _converted(value, of.type)
    if made is None:
        hint = f"give a value of the type `{of.type}`"
        raise SpecError(
            Problem(f"`{_text(value)}` is not of the type `{of.type}`", where, None, hint)
        )
    if of.enum is not None and all(made != _converted(choice, of.type) for choice in of.enum):
        values = ", ".join(f"`{_text(choice)}`" for choice in of.enum)
        raise SpecError(Problem(f"`{_text(value)}` is not one of {values}", where, None, "use one"))
    for bound, sign, word in ((of.min, 1, "less"), (of.max, -1, "more")):
        if bound is not None and isinstance(made, int | float) and sign * made < sign * bound:
            limit = f"the {'least' if sign > 0 else 'most'} is {bound:g}"
            problem = Problem(f"`{_text(value)}` is {word} than {bound:g}", where, None, limit)
            raise SpecError(problem)
    return made


def _converted(value: Any, kind: str) -> bool | int | float | str | None:
    """The value as ``kind``; None if it cannot be."""
    if isinstance(value, str) and kind != "string":
        text = value.strip()
        if kind == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        try:
            value = int(text)
        except ValueError:
            try:
                value = float(text)
            except ValueError:
                return None
    if kind == "string":
        return _text(value) if isinstance(value, bool | int | float | str) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if kind == "integer":
        return int(value) if float(value).is_integer() else None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
