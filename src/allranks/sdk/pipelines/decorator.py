"""``@pipeline``: a Python function whose calls of components are the steps of a pipeline."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from allranks.errors import UsageError
from allranks.sdk.submit.nodes import (
    Node,
    PipelineInput,
    StepOutput,
    building,
    built,
    is_building,
)
from allranks.spec.fields.base import plain
from allranks.spec.pipeline.job import NODE_NAME, PipelineJob

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.sdk.pipelines.components import Component

F = TypeVar("F", bound=Callable[..., Any])


class PipelineKeys(TypedDict, total=False):
    """The keywords of ``pipeline``."""

    name: str | None
    version: str | None
    display_name: str | None
    description: str | None
    experiment_name: str | None
    tags: Mapping[str, str] | None
    compute: str | None
    default_compute: str | None
    default_datastore: str | None
    continue_on_step_failure: bool | None
    force_rerun: bool | None


@overload
def pipeline(function: F, /) -> F: ...
@overload
def pipeline(**keywords: Unpack[PipelineKeys]) -> Callable[[F], F]: ...
def pipeline(function: Any = None, /, **keywords: Unpack[PipelineKeys]) -> Any:
    """Make a function build a pipeline. Calling it returns a ``PipelineJob``, and inside of another
    such function a step.

    The function's parameters are the inputs of the pipeline. It returns the outputs of steps that
    are outputs of the pipeline, by name, or nothing. Steps are named by the variables that hold
    them. Keywords are keys of the pipeline job (``compute``, ``description``, ``tags``,
    ``experiment_name``, …) and of its settings (``default_compute``, ``continue_on_step_failure``,
    ``force_rerun``). ``name`` and ``version`` are those of the component that it is when it is
    registered: each job gets a name of its own.
    """
    if function is None:
        return functools.partial(_decorated, keywords=keywords)
    return _decorated(function, {})


_OF_COMPONENT = ("name", "version")
_SETTINGS = (
    "default_compute",
    "default_datastore",
    "continue_on_step_failure",
    "force_rerun",
)


def _decorated(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    if any(parameter.kind in _SEVERAL for parameter in signature.parameters.values()):
        hint = "give each input of the pipeline a parameter"
        raise UsageError(f"{function.__name__} has * or ** parameters", hint=hint)

    @functools.wraps(function)
    def build(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = signature.bind(*args, **kwargs)
        except TypeError as error:
            problem = UsageError(f"{function.__name__}: {error}", hint=f"{signature}")
            if args or kwargs or is_building():
                raise problem from None
            return _Unfilled(make, problem)
        arguments.apply_defaults()
        # An optional input that is not given does not exist.
        values = {k: v for k, v in arguments.arguments.items() if v is not None}
        own = {key: value for key, value in keywords.items() if key not in _OF_COMPONENT}
        return _build(function, arguments.arguments, values, own)

    def make() -> Document:
        return _component(function, signature, keywords)

    build.component = make  # type: ignore[attr-defined]
    # Azure's samples use this private name.
    builder = SimpleNamespace(build=lambda: _of(make()))
    build._pipeline_builder = builder  # type: ignore[attr-defined]
    return build


def _of(data: Document) -> Component:
    from allranks.sdk.pipelines.components import Component  # lazy: few programs register them

    return Component(data)


class _Unfilled:
    """A pipeline that was called without the inputs that it needs: only its component is of use.
    All else raises the ``problem``."""

    def __init__(self, make: Callable[[], Document], problem: UsageError) -> None:
        self._make, self.problem = make, problem

    @property
    def component(self) -> Component:
        return _of(self._make())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.problem


def _component(
    function: Callable[..., Any], signature: inspect.Signature, keywords: Mapping[str, Any]
) -> Document:
    """The function as a pipeline component, for registration."""
    inputs = {name: _declared(each) for name, each in signature.parameters.items()}
    nodes: list[Node] = []
    token = building(nodes)
    try:
        returned, names = _called(function, {name: PipelineInput(name) for name in inputs})
    finally:
        built(token)
    _name(nodes, names)
    outputs = _outputs(function, returned)
    own = (*_OF_COMPONENT, "display_name", "description", "tags")
    return {
        "name": re.sub(r"\W", "_", function.__name__).lower(),
        **{key: each for key, each in keywords.items() if key in own},
        "type": "pipeline",
        "inputs": inputs,
        "outputs": {name: {"type": each.type or "uri_folder"} for name, each in outputs.items()},
        "jobs": _jobs(nodes, outputs),
    }


def _declared(parameter: inspect.Parameter) -> Document:
    """The input that a parameter is: by its annotation, or by its default value."""
    declared = getattr(parameter.annotation, "declared", None)
    if declared is not None:
        return dict(declared())
    default = parameter.default
    if default is inspect.Parameter.empty or default is None:
        optional = {"optional": True} if default is None else {}
        return {"type": _LITERALS.get(parameter.annotation, "uri_folder"), **optional}
    return {"type": _LITERALS.get(type(default), "string"), "default": default}


_LITERALS = {bool: "boolean", int: "integer", float: "number", str: "string"}


_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _build(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    values: Mapping[str, Any],
    keywords: Document,
) -> PipelineJob | Node:
    nodes: list[Node] = []
    token = building(nodes)
    try:
        inside = {name: PipelineInput(name) if name in values else None for name in arguments}
        returned, names = _called(function, inside)
    finally:
        built(token)
    _name(nodes, names)
    outputs = _outputs(function, returned)
    settings = {key: keywords.pop(key) for key in _SETTINGS if key in keywords}
    data: Document = {
        "type": "pipeline",
        **keywords,
        **({"settings": settings} if settings else {}),
        "jobs": _jobs(nodes, outputs),
    }
    if outputs:
        data["outputs"] = {name: each.data() for name, each in outputs.items()}
    name = re.sub(r"\W", "_", function.__name__).lower()
    if is_building():
        return Node(data, values, [*outputs], name)
    data["inputs"] = {key: plain(value) for key, value in values.items()}
    return PipelineJob.parse({"display_name": name, **data})


def _called(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[Any, Mapping[str, Any]]:
    """What the function returns, and its variables."""
    variables: Document = {}
    code = inspect.unwrap(function).__code__

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is code:
            variables.update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        returned = function(**arguments)
    finally:
        sys.setprofile(before)
    return returned, variables


def _name(nodes: list[Node], variables: Mapping[str, Any]) -> None:
    """Name the steps: as they say, by their variables, or by their components."""
    for name, value in variables.items():
        if isinstance(value, Node) and value in nodes and value.name is None:
            value.name = name
    taken = {node.name for node in nodes if node.name is not None}
    for node in nodes:
        if node.name is None:
            own = node.own_name if NODE_NAME.fullmatch(node.own_name) else "step"
            name, number = own, 1
            while name in taken:
                name, number = f"{own}_{number}", number + 1
            node.name = name
            taken.add(name)


def _outputs(function: Callable[..., Any], returned: Any) -> dict[str, StepOutput]:
    if returned is None:
        return {}
    if not isinstance(returned, Mapping) or not all(
        isinstance(each, StepOutput) for each in returned.values()
    ):
        hint = "return {'model': step.outputs.model}, or nothing"
        raise UsageError(f"{function.__name__} must return outputs of steps by name", hint=hint)
    return dict(returned)


def _jobs(nodes: list[Node], outputs: Mapping[str, StepOutput]) -> Document:
    jobs = {str(node.name): node.to_dict() for node in nodes}
    for name, of in outputs.items():
        step = jobs[str(of.node.name)]
        step.setdefault("outputs", {})[of.name] = f"${{{{parent.outputs.{name}}}}}"
    return jobs
