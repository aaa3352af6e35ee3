"""Steps of a pipeline that is being built by a Python function."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from allranks.errors import UsageError
from allranks.spec.fields.base import plain
from allranks.spec.pipeline.nodes import ComponentNode
from allranks.spec.sweep.build import with_parameters
from allranks.spec.sweep.search_space import DISTRIBUTIONS

if TYPE_CHECKING:
    from allranks.api.common import Document

# The pipelines that are being built; the last one gets new steps.
_BUILDING: ContextVar[tuple[list[Node], ...]] = ContextVar("pipelines", default=())
# Keys of a step that may be set as attributes.
_SETTABLE = ComponentNode.model_fields.keys() - {"type", "component", "inputs", "outputs"}
SECTIONS = ("distribution", "environment_variables", "limits", "queue_settings", "resources")


class PipelineInput(str):
    """An input of the pipeline that is being built. In a text it is replaced when the pipeline is
    submitted."""

    def __new__(cls, name: str) -> PipelineInput:
        return super().__new__(cls, f"${{{{parent.inputs.{name}}}}}")


class StepOutput:
    """An output of a step, for inputs of others and for outputs of the pipeline. ``mode``, ``path``
    and ``type`` may be set."""

    def __init__(self, node: Node, name: str) -> None:
        self._node, self._name = node, name
        self.mode: str | None = None
        self.path: str | None = None
        self.type: str | None = None

    @property
    def node(self) -> Node:
        return self._node

    @property
    def name(self) -> str:
        return self._name

    def expression(self) -> str:
        return f"${{{{parent.jobs.{self._node.name}.outputs.{self._name}}}}}"

    def data(self) -> Document | None:
        data = {"type": self.type, "mode": self.mode, "path": self.path}
        return {key: value for key, value in data.items() if value is not None} or None


class Outputs:
    """The outputs of a step, as attributes and keys."""

    def __init__(self, node: Node, names: list[str] | None) -> None:
        self._node, self._names = node, names
        self._made: dict[str, StepOutput] = {}

    def __getattr__(self, name: str) -> StepOutput:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._names is not None and name not in self._names:
            has = ", ".join(self._names) or "none"
            raise AttributeError(f"output {name!r} not found; the outputs are: {has}")
        return self._made.setdefault(name, StepOutput(self._node, name))

    def __getitem__(self, name: str) -> StepOutput:
        return self.__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """``step.outputs.model = Output(path=…)`` says where an output goes."""
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        made = self.__getattr__(name)
        keys = plain(value) or {}
        for key in ("type", "mode", "path"):
            setattr(made, key, keys.get(key))

    def _data(self) -> Document:
        # Private like all else here: the outputs are attributes.
        return {name: each.data() for name, each in self._made.items()}


class Section(dict[str, Any]):
    """Keys of a section of a step, as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class StepInput:
    """An input of a step, with a ``mode`` and a ``type`` of its own."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.mode: str | None = None
        self.type: str | None = None

    def data(self) -> Any:
        source = bound(self.value)
        own = {"mode": self.mode, "type": self.type}
        keys = {key: value for key, value in own.items() if value is not None}
        if not keys:
            return source
        return {**(source if isinstance(source, Mapping) else {"path": source}), **keys}


class StepInputs:
    """The inputs of a step, as attributes."""

    def __init__(self, inputs: Document) -> None:
        self._inputs = inputs

    def __getattr__(self, name: str) -> StepInput:
        if name.startswith("_") or name not in self._inputs:
            raise AttributeError(f"input {name!r} not found")
        value = self._inputs[name]
        made = value if isinstance(value, StepInput) else StepInput(value)
        self._inputs[name] = made
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self._inputs[name] = value


class Node:
    """A step. Its KEYS, such as ``compute``, may be set as attributes."""

    KEYS = frozenset((*_SETTABLE, *SECTIONS))

    def __init__(
        self, job: Mapping[str, Any], inputs: Mapping[str, Any], outputs: list[str] | None, own: str
    ) -> None:
        building = _BUILDING.get()
        if not building:
            hint = "call it inside of a function with @pipeline"
            raise UsageError("a component was called outside of a pipeline", hint=hint)
        self._job, self._own = dict(job), own
        self._inputs = dict(inputs)
        self._set: Document = {}
        self.name: str | None = None
        self.outputs = Outputs(self, outputs)
        self._list = building[-1]
        self._list.append(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name in ("name", "outputs"):
            super().__setattr__(name, value)
        elif name in _SETTABLE:
            self._set[name] = value
        else:
            raise AttributeError(f"a step has no key {name!r}")

    def __getattr__(self, name: str) -> Any:
        """Sections, such as ``resources``, whose keys may be set: ``resources.instance_count``."""
        if name not in SECTIONS:
            raise AttributeError(f"a step has no key {name!r}")
        keys = plain(self._set.get(name, self._job.get(name))) or {}
        section = self._set[name] = keys if isinstance(keys, Section) else Section(keys)
        return section

    @property
    def inputs(self) -> StepInputs:
        """Its inputs, whose ``mode`` and ``type`` may be set."""
        return StepInputs(self._inputs)

    def set_limits(self, **limits: float | None) -> None:
        """Change the limits of a step that is a sweep."""
        changes = {key: value for key, value in limits.items() if value is not None}
        self._job["limits"] = {**(self._job.get("limits") or {}), **changes}

    @property
    def own_name(self) -> str:
        """The name that its component suggests."""
        return self._own

    def sweep(self, *, primary_metric: str, goal: str, **keywords: Any) -> Node:
        """The step as a sweep over the inputs that were given as distributions; the keywords are
        those of ``Command.sweep``."""
        space = {k: v for k, v in self._inputs.items() if isinstance(v, DISTRIBUTIONS)}
        keys = {key: value for key, value in keywords.items() if value is not None}
        limits = {key: keys.pop(key) for key in _LIMITS if key in keys}
        policy = keys.pop("early_termination_policy", None)
        trial = self._job.get("component") or {
            key: value for key, value in self._job.items() if key not in ("type", "name")
        }
        if isinstance(trial, Mapping) and "component" not in self._job:
            # Its command is written for inputs; a parameter is none.
            trial = {**trial, "command": with_parameters(trial["command"], space)}
        space |= keys.pop("search_space", {})
        job = {
            "type": "sweep",
            "trial": trial,
            "search_space": {name: plain(each) for name, each in space.items()},
            "objective": {"goal": goal, "primary_metric": primary_metric},
            "limits": limits,
            **({"early_termination": plain(policy)} if policy is not None else {}),
            **{key: plain(value) for key, value in keys.items()},
        }
        self._list.remove(self)
        rest = {name: value for name, value in self._inputs.items() if name not in space}
        return Node(job, rest, self.outputs._names, self._own)

    def to_dict(self) -> Document:
        """The step's data; all steps must have their names."""
        inputs = {name: bound(value) for name, value in self._inputs.items()}
        changes = {key: plain(value) for key, value in self._set.items()}
        outputs = {**(self._job.get("outputs") or {}), **self.outputs._data()}
        made = {**self._job, **changes}
        made |= {"inputs": inputs} if inputs else {}
        return made | ({"outputs": outputs} if outputs else {})


_LIMITS = ("max_total_trials", "max_concurrent_trials", "timeout", "trial_timeout")


def bound(value: Any) -> Any:
    """An input of a step as its file has it."""
    if isinstance(value, StepInput):
        return value.data()
    if isinstance(value, StepOutput):
        return value.expression()
    if isinstance(value, Node):
        outputs = value.outputs._data()
        if len(outputs) == 1:
            return getattr(value.outputs, next(iter(outputs))).expression()
        raise UsageError("a step is no input", hint="name one of its outputs: step.outputs.NAME")
    if isinstance(value, PipelineInput):
        return str(value)
    return plain(value)


def is_building() -> bool:
    """Whether a function with ``@pipeline`` runs."""
    return bool(_BUILDING.get())


def building(nodes: list[Node]) -> Any:
    """New steps go to ``nodes``, until the returned token is reset."""
    return _BUILDING.set((*_BUILDING.get(), nodes))


def built(token: Any) -> None:
    _BUILDING.reset(token)
