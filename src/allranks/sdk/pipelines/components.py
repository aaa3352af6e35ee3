"""Components in Python: loaded from files or from the server, called as steps."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.api import routes
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.connection.references import reference
from allranks.sdk.submit.nodes import Node
from allranks.sdk.submit.pipeline import anchored, prepare_component
from allranks.sdk.submit.send import send
from allranks.spec.fields.base import plain
from allranks.spec.fields.scalars import sendable
from allranks.spec.pipeline.component import AnyComponent, parse_component
from allranks.spec.yaml import load


class Component:
    """A component. Calling it in a function with ``@pipeline`` adds a step; the keywords are its
    inputs: values, ``Input(…)``, inputs of the pipeline, or outputs of other steps.

    An assignment changes a key of it; a registered one is one of this program from then on. Raises
    SpecError, and the component stays as it was."""

    def __init__(self, data: Mapping[str, Any], registered: bool = False) -> None:
        self.spec: AnyComponent = parse_component(data)
        self._data, self._registered = dict(data), registered

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name == "spec":
            super().__setattr__(name, value)
        else:
            changed = Component({**self._data, name: plain(value)})
            self.spec, self._data, self._registered = changed.spec, changed._data, False

    @property
    def name(self) -> str | None:
        return self.spec.name

    @property
    def version(self) -> str | None:
        return self.spec.version

    @property
    def description(self) -> str | None:
        return self.spec.description

    @property
    def id(self) -> str | None:
        return f"azureml:{self.name}:{self.version}" if self._registered else None

    def __call__(self, **inputs: Any) -> Node:
        for name in inputs.keys() - self.spec.inputs.keys():
            names = ", ".join(self.spec.inputs) or "none"
            hint = f"its inputs: {names}"
            raise UsageError(f"the component {self.name} has no input {name!r}", hint=hint)
        component: Any = self._data
        if self._registered:
            component = f"azureml:{self.name}:{self.version}"
        job = {"type": self.spec.type, "component": component}
        return Node(job, inputs, [*self.spec.outputs], self.name or "step")

    @property
    def _func(self) -> Any:
        """As Azure's: the function that adds a step, with its documentation."""

        def add_step(**inputs: Any) -> Node:
            return self(**inputs)

        add_step.__name__ = self.name or "component"
        lines = [f"{name}: {each.type}" for name, each in self.spec.inputs.items()]
        add_step.__doc__ = "\n".join([self.spec.description or "", "", *lines])
        return add_step

    def __repr__(self) -> str:
        return f"Component(name={self.name!r}, version={self.version!r})"


def load_component(source: str | os.PathLike[str] | Component) -> Component:
    """A component from its YAML file; one that is loaded stays. Raises NotFound, and SpecError with
    key, line and hint."""
    if isinstance(source, Component):
        return source
    file = Path(source)
    data, lines = load.read(load.content(file), file=str(file))
    parse_component(data, lines, str(file))
    return Component(anchored(sendable(data), file.absolute().parent))


class Components:
    """Operations on registered components. All raise AllranksError with a hint."""

    def create_or_update(self, component: Any, *, version: str | None = None) -> Component:
        """Register a version of a ``Component`` or of a ``@pipeline`` function; its number is the
        next one if it has none. The same version with another content raises Conflict."""
        made_by = getattr(component, "component", None)  # a function with ``@pipeline``
        component_data = component._data if made_by is None else made_by()
        data = {**component_data, **({"version": version} if version else {})}
        made, snapshots = prepare_component(data, Path.cwd())
        with find_server.connect() as client:
            return _made(send(client, made, snapshots, to=routes.create_component.at()))

    def get(self, name: str, version: str | None = None, label: str = "latest") -> Component:
        """A version, by number or label."""
        return _made(find_server.ask(routes.show_component, reference(name, version, label)))

    def list(self, name: str | None = None) -> builtins.list[Component]:
        """The newest version of every component, or all versions of one."""
        return [_made(each) for each in find_server.ask(routes.list_components, name=name)]


def _made(answer: Mapping[str, Any]) -> Component:
    own = ("labels", "created_at", "created")
    return Component({key: value for key, value in answer.items() if key not in own}, True)
