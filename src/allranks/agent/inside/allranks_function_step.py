"""Runs a function that `mldesigner` made a component: SOURCE FUNCTION NAME=VALUE …,
and writes what it returns to the file that is of no parameter. For any Python
from 3.7 on, with nothing installed: in the source, `mldesigner` is what is below.
"""

import os
import sys

from allranks_standard import give_way, standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import importlib
    import inspect
    from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List


class Port(object):
    """`Input` and `Output`: of a type."""

    def __init__(self, type="uri_folder", **_):  # type: (str, Any) -> None
        self.type = type


def command_component(func=None, **_):  # type: (Any, Any) -> Any
    """The function itself."""
    return (lambda function: function) if func is None else func


def main(words):  # type: (List[str]) -> None
    source, name = words[:2]
    module = ModuleType("mldesigner")
    module.command_component = command_component  # type: ignore[attr-defined]
    module.Input = module.Output = module.Meta = Port  # type: ignore[attr-defined]
    sys.modules["mldesigner"] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(source)))
    give_way()
    stem = os.path.splitext(os.path.basename(source))[0]
    function = getattr(importlib.import_module(stem), name)
    parameters = inspect.signature(function).parameters
    values, target = {}, ""
    for word in words[2:]:
        key, _, text = word.partition("=")
        if key.endswith("@"):  # what another function has returned
            key = key[:-1]
            with open(text) as file:
                text = file.read()
        if key in parameters:
            values[key] = _value(text, parameters[key])
        else:
            target = text
    returned = function(**values)
    if target:
        with open(target, "w") as file:
            file.write(str(returned))


def _value(text, parameter):  # type: (str, inspect.Parameter) -> Any
    annotation = parameter.annotation
    if annotation is parameter.empty:
        annotation = type(parameter.default)
    kind = getattr(annotation, "type", None) or getattr(annotation, "__name__", "")
    if kind in ("integer", "int"):
        return int(text)
    if kind in ("number", "float"):
        return float(text)
    if kind in ("boolean", "bool"):
        return text.lower() == "true"
    return text


if __name__ == "__main__":
    main(sys.argv[1:])
