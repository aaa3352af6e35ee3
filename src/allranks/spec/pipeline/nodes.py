"""One step of a pipeline as its file has it: inline, or a component with its own keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import below, nearest, validated, without_none
from allranks.spec.fields.scalars import DataName, Integer, Text, Texts
from allranks.spec.job import MODELS, CommandJob
from allranks.spec.job_keys import RankKeys
from allranks.spec.job_parts import Limits, QueueSettings, snake
from allranks.spec.pipeline.bindings import is_bound, whole
from allranks.spec.pipeline.component import (
    AnyComponent,
    CommandComponent,
    ComponentInput,
    ComponentOutput,
    ParallelComponent,
    PipelineComponent,
    component_type,
    parse_component,
)
from allranks.spec.pipeline.job import PipelineJob, unknown_type
from allranks.spec.pipeline.parallel import (
    ParallelKeys,
    ParallelTask,
    RetrySettings,
    command_job,
)
from allranks.spec.services import AnyService, Identity
from allranks.spec.sweep.build import with_parameters
from allranks.spec.sweep.job import SweepJob, Trial


class Node(NamedTuple):
    """A step. ``job`` is its job's spec without inputs and outputs. ``inputs`` and ``outputs`` are
    as given; ``declared`` those of its component, None without one."""

    type: str
    job: dict[str, Any]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    declared: Mapping[str, ComponentInput] | None
    declared_outputs: Mapping[str, ComponentOutput] | None
    component: str = ""
    deterministic: bool = True


class ComponentNode(RankKeys):
    """The keys of a step that runs a component. What it sets overrides the component's."""

    type: Text | None = None
    component: dict[str, Any]
    name: Text | None = None
    display_name: Text | None = None
    description: Text | None = None
    comment: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    inputs: dict[DataName, Any] = Field(default_factory=dict)
    outputs: dict[DataName, Any] = Field(default_factory=dict)
    compute: Text | None = None
    limits: Limits = Field(default_factory=Limits)
    services: dict[Text, AnyService] = Field(default_factory=dict)
    identity: Identity | None = None
    queue_settings: QueueSettings = Field(default_factory=QueueSettings)
    settings: dict[str, Any] = Field(default_factory=dict)
    mini_batch_size: Text | None = None
    mini_batch_error_threshold: Integer | None = None
    max_concurrency_per_instance: Integer | None = None
    retry_settings: dict[str, Any] | None = None
    logging_level: Text | None = None
    partition_keys: list[Text] | None = None
    error_threshold: Integer | None = None


# The keys of a step that a parallel component has, too.
_PARALLEL = (
    "mini_batch_size",
    "mini_batch_error_threshold",
    "max_concurrency_per_instance",
    "retry_settings",
    "logging_level",
    "partition_keys",
    "error_threshold",
    "resources",
)
_MODELS: Mapping[str, tuple[type[BaseModel], ...]] = {
    **{key: value for key, value in MODELS.items() if key not in ("", "inputs.*", "outputs.*")},
    "": (ComponentNode,),
}
_OF_PARALLEL: Mapping[str, tuple[type[BaseModel], ...]] = {
    "": (ParallelKeys,),
    "task": (ParallelTask,),
    "retry_settings": (RetrySettings,),
}
# Keys of a step that are added to those of its component, and keys that replace them.
_MERGED = ("environment_variables", "resources", "limits", "metrics")
_REPLACED = tuple(key for key in RankKeys.model_fields if key not in _MERGED)
# Keys of a step that its job gets unchanged.
_OF_NODE = (
    "display_name",
    "description",
    "tags",
    "properties",
    "compute",
    "services",
    "identity",
    "queue_settings",
    *_REPLACED,
)
# Keys of a component that its job gets, unless the step has them.
_OF_COMPONENT = ("command", "code", "snapshot", "display_name", "description", *_REPLACED)


def read_node(name: str, data: Mapping[str, Any]) -> Node:
    """The step ``name``. Its components must be mappings. Raises SpecError with keys of the
    pipeline: ``jobs.NAME.…``."""
    component = data.get("component")
    if isinstance(component, Mapping) and component.get("name"):
        named = {"azureml.moduleName": str(component["name"])}
        data = {**data, "properties": {**named, **(data.get("properties") or {})}}
    with below(f"jobs.{name}"):
        kind = node_type(data)
        return _READERS[kind](dict(data)) if kind in _READERS else _refuse(kind)


def node_type(data: Mapping[str, Any]) -> str:
    """The type of a step: given, that of its component, or `command`."""
    if data.get("type") is not None:
        return str(snake(data["type"]))
    component = data.get("component")
    if isinstance(component, Mapping):
        return component_type(component)
    if "trial" in data:
        return "sweep"
    if "task" in data:
        return "parallel"
    return "pipeline" if "jobs" in data else "command"


def _refuse(kind: str) -> Node:
    raise SpecError(unknown_type(kind, "type"))


def _command(data: dict[str, Any]) -> Node:
    if data.get("component") is not None:
        return _of_component(data, CommandComponent)
    snapshot = data.pop("snapshot", None)
    inputs = data.get("inputs") or {}
    outputs = data.get("outputs") or {}
    own = _unbound(outputs)
    job = CommandJob.parse({**data, "type": "command", "outputs": own}).to_dict()
    return Node("command", _template(job, snapshot), inputs, outputs, None, None)


def _template(job: Mapping[str, Any], snapshot: Any) -> dict[str, Any]:
    left_out = ("name", "inputs", "outputs", "$schema", "type", "experiment_name")
    made = {key: value for key, value in job.items() if key not in left_out}
    return {**made, "snapshot": snapshot} if snapshot else made


def _parallel(data: dict[str, Any]) -> Node:
    """A parallel step; without a component its own keys are one whose inputs are not declared."""
    if data.get("component") is not None:
        return _of_component(data, ParallelComponent)
    inputs = data.get("inputs") or {}
    outputs = data.get("outputs") or {}
    names = ("task", "input_data", *_PARALLEL)
    command = MODELS[""][0].model_fields
    own = {
        key: data.pop(key)
        for key in [*data]
        if key in names or (key not in command and nearest(key, names))
    }
    keys = validated(ParallelKeys, own, _OF_PARALLEL)
    node = _command({**data, **command_job(keys), "type": "command"})
    return node._replace(inputs=inputs, outputs=outputs)


def _of_component(data: Mapping[str, Any], kind: type[AnyComponent]) -> Node:
    """A step that runs a component of that kind."""
    component = data.get("component")
    if not isinstance(component, Mapping):
        raise SpecError(_unresolved(component))
    node = validated(ComponentNode, without_none(data), _MODELS)
    made: Any
    with below("component"):
        made = parse_component(component)
    if not isinstance(made, kind):
        message = f"the component is a {made.type}, and the step is not"
        raise SpecError(Problem(message, "type", hint=f"write `type: {made.type}`"))
    dumped = node.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(made, ParallelComponent):
        changed = {**component, **{key: dumped.pop(key) for key in _PARALLEL if key in dumped}}
        with below("component"):
            made = parse_component(changed)
        own = command_job(made)
    else:
        own = made.to_dict()
    if isinstance(made, PipelineComponent):
        job = {"component": dict(component), "settings": {**made.settings, **node.settings}}
    else:
        job = {key: own[key] for key in _OF_COMPONENT if key in own}
        for key in _MERGED:
            if merged := {**own.get(key, {}), **dumped.get(key, {})}:
                job[key] = merged
    job |= {key: dumped[key] for key in _OF_NODE if key in dumped}
    label = f"{made.name}:{made.version}" if made.name and made.version else made.name or ""
    return Node(
        "pipeline" if isinstance(made, PipelineComponent) else "command",
        job,
        node.inputs,
        node.outputs,
        made.inputs,
        made.outputs,
        label,
        made.is_deterministic,
    )


def _sweep(data: dict[str, Any]) -> Node:
    trial = data.get("trial")
    if not isinstance(trial, Mapping):
        raise SpecError(_unresolved(trial, "trial"))
    data, trial = {**data, "type": "sweep"}, dict(trial)
    inputs = data.get("inputs") or {}
    outputs = data.get("outputs") or {}
    declared, declared_outputs, label, deterministic = None, None, "", True
    snapshot = trial.pop("snapshot", None)
    if trial.keys() & {"inputs", "outputs", "name", "version", "$schema", "type"}:
        component = dict(trial)
        with below("trial"):
            made = parse_component(component)
        if not isinstance(made, CommandComponent):
            raise SpecError(Problem("a trial is a command component", "trial", hint="use one"))
        own = made.to_dict()
        trial = {key: own[key] for key in Trial.model_fields if key in own}
        space = data.get("search_space") or {}
        trial["command"] = with_parameters(trial["command"], space)
        declared = {name: value for name, value in made.inputs.items() if name not in space}
        declared_outputs, label = made.outputs, made.name or ""
        deterministic = made.is_deterministic
        if "limits" in own and "timeout" in own["limits"]:
            limits = {"trial_timeout": own["limits"]["timeout"], **(data.get("limits") or {})}
            data["limits"] = limits
    all_inputs = {**dict.fromkeys(declared or {}, ""), **inputs}
    plain = {**{name: {} for name in declared_outputs or {}}, **_unbound(outputs)}
    job = SweepJob.parse({**data, "trial": trial, "inputs": all_inputs, "outputs": plain}).to_dict()
    template = _template(job, None)
    if snapshot:
        template["snapshot"] = snapshot
    template["type"] = "sweep"
    return Node(
        "sweep", template, inputs, outputs, declared, declared_outputs, label, deterministic
    )


def _pipeline(data: dict[str, Any]) -> Node:
    if data.get("component") is not None:
        return _of_component(data, PipelineComponent)
    inputs = data.get("inputs") or {}
    outputs = data.get("outputs") or {}
    own = _unbound(outputs)
    job = PipelineJob.parse({**data, "type": "pipeline", "outputs": own}).to_dict()
    return Node(
        "pipeline", {**_template(job, None), "type": "pipeline"}, inputs, outputs, None, None
    )


def _unbound(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs without their references to outputs of the pipeline."""
    made: dict[str, Any] = {}
    for name, output in outputs.items():
        if isinstance(output, Mapping) and (whole(output.get("path")) or "").startswith("parent."):
            output = {key: value for key, value in output.items() if key != "path"}
        made[name] = {} if is_bound(output) else output
    return made


def _unresolved(component: Any, where: str = "component") -> Problem:
    if component is None:
        return Problem("the step has no command", "command", hint="add `command` or `component`")
    hint = "give a file, or a registered component: azureml:NAME:VERSION"
    return Problem(f"component {component!r} not found", where, hint=hint)


_READERS: Mapping[str, Callable[[dict[str, Any]], Node]] = {
    "command": _command,
    "parallel": _parallel,
    "sweep": _sweep,
    "pipeline": _pipeline,
}
