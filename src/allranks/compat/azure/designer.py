"""`mldesigner`: components that are Python functions."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.compat.azure import v2
from allranks.compat.azure.v2 import TYPES_OF_VALUES, OpenInput, component_data
from allranks.errors import UsageError
from allranks.sdk.pipelines.components import Component
from allranks.sdk.submit.nodes import Node, StepOutput
from allranks.sdk.submit.paths import environment_of, has_files
from allranks.spec.job_parts import Output
from allranks.spec.pipeline.component import LITERALS

if TYPE_CHECKING:
    from allranks.api.common import Document

# The program of a job's node that calls the function, in `agent/inside`.
_RUNNER = "allranks_function_step"


# The output of a function whose annotation is one of these, and what it returns.
_RETURNED, _VALUES = "output", (str, int, float, bool)


class FunctionComponent(Component):
    """A component of a function; it takes positional arguments, too. ``keys`` makes those of its
    file, where some inputs come as files."""

    def __init__(
        self, function: Callable[..., Any], keys: Callable[[Collection[str]], Document]
    ) -> None:
        super().__init__(component_data("command", keys(())))
        functools.update_wrapper(self, function)
        self._function, self._keys = function, keys

    def __call__(self, *values: Any, **inputs: Any) -> Node:
        signature = inspect.signature(self._function)
        ports = [port for name, port in signature.parameters.items() if name in self.spec.inputs]
        try:
            bound = signature.replace(parameters=ports).bind_partial(*values, **inputs)
        except TypeError as error:
            hint = f"its inputs: {', '.join(self.spec.inputs) or 'none'}"
            raise UsageError(f"the component {self.name}: {error}", hint=hint) from None
        values_of_steps = [
            name
            for name, value in bound.arguments.items()
            if isinstance(value, StepOutput) and self.spec.inputs[name].type in LITERALS
        ]
        if values_of_steps:
            data = component_data("command", self._keys(values_of_steps))
            return Component(data)(**bound.arguments)
        return super().__call__(**bound.arguments)


def command_component(
    func: Callable[..., Any] | None = None,
    *,
    environment: Any = None,
    code: str | os.PathLike[str] | None = None,
    **keywords: Any,
) -> Any:
    """Make a component of a function in a file. Its parameters are inputs and outputs, by their
    annotations; ``keywords`` are keys of a component's file. Raises UsageError."""

    def decorate(function: Callable[..., Any]) -> FunctionComponent:
        file = Path(inspect.getsourcefile(function) or "").absolute()
        if not file.is_file():
            message = f"the component {function.__name__} is not in a file"
            raise UsageError(message, hint="move it from the notebook to a .py file")
        root = Path(file.parent, code or ".").resolve()
        name = keywords.get("name") or function.__name__
        words = ["python", "-m", _RUNNER, os.path.relpath(file, root), function.__name__]

        def keys(come_as_files: Collection[str]) -> Document:
            line, (inputs, outputs) = shlex.join(words), _ports(function)
            for key, declared in inputs.items():
                is_file = key in come_as_files
                word = f'{key}{"@" * is_file}="${{{{inputs.{key}}}}}"'
                line += f" $[[{word}]]" if declared.given.get("optional") else f" {word}"
                inputs[key] = OpenInput(type="uri_file") if is_file else declared
            line += "".join(f' {key}="${{{{outputs.{key}}}}}"' for key in outputs)
            return {
                "description": inspect.getdoc(function),
                "display_name": name,
                **keywords,
                "name": name,
                "command": line,
                "code": str(root),
                "inputs": inputs,
                "outputs": outputs,
                "environment": _environment(environment, file.parent),
            }

        return FunctionComponent(function, keys)

    return decorate if func is None else decorate(func)


def _ports(function: Callable[..., Any]) -> tuple[Document, Document]:
    inputs: Document = {}
    outputs: Document = {}
    signature = inspect.signature(function, eval_str=True)
    if signature.return_annotation in _VALUES:
        outputs[_RETURNED] = {"type": "uri_file"}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            hint = "name each input"
            raise UsageError(f"{function.__name__} takes any number of inputs", hint=hint)
        kind, default = parameter.annotation, parameter.default
        if kind is v2.Output or isinstance(kind, Output):
            outputs[name] = {"type": getattr(kind, "type", "uri_folder")}
            continue
        if kind is v2.Input:
            kind = OpenInput()
        if not isinstance(kind, OpenInput):
            written = type(default) if kind is parameter.empty else kind
            kind = OpenInput(type=TYPES_OF_VALUES.get(written, "string"))
        port = dict(kind.given)
        if default is None:
            port["optional"] = True
        elif default is not parameter.empty:
            port["default"] = default
        inputs[name] = OpenInput(**port)
    return inputs, outputs


def _environment(environment: Any, folder: Path) -> Any:
    """With the content of its files, whose paths start at ``folder``."""
    if environment is None:
        return "current"
    if str(environment).endswith((".yml", ".yaml")):
        environment = f"file:{environment}"
    return environment_of(environment, folder) if has_files(environment) else environment
