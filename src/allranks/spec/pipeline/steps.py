"""The steps of a pipeline: their inputs bound and checked, and the jobs they become. Pure."""

from __future__ import annotations

import graphlib
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from allranks.errors import Problem, SpecError
from allranks.spec.fields.azureml_references import output_uri
from allranks.spec.fields.problems import below, nearest, nearest_name
from allranks.spec.pipeline import bindings
from allranks.spec.pipeline.bindings import FromParent, FromStep
from allranks.spec.pipeline.component import (
    LITERALS,
    ComponentInput,
    PipelineComponent,
    literal,
    parse_component,
)
from allranks.spec.pipeline.job import PACKAGES, PipelineJob, name_problems
from allranks.spec.pipeline.nodes import Node, read_node


class Step(NamedTuple):
    """A step. ``job`` is the spec of its job without name, inputs and outputs. Its ``inputs`` have
    the pipeline's values; paths in outputs of other steps, of which it runs ``after``, are still
    expressions. ``bound``: its output for each output of the pipeline that it writes."""

    name: str
    type: str
    job: Mapping[str, Any]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Mapping[str, Any]]
    after: tuple[str, ...]
    bound: Mapping[str, str]
    component: str = ""
    deterministic: bool = True


def steps_of(pipeline: PipelineJob) -> dict[str, Step]:
    """The steps by name, each after those it depends on. Raises one SpecError with everything that
    is wrong."""
    return _Resolver(pipeline).steps()


def child_spec(
    step: Step, name: str, pipeline: PipelineJob, jobs: Mapping[str, str]
) -> dict[str, Any]:
    """The spec of the step's job ``name``; ``jobs`` are the names of the jobs of other steps."""
    job = {key: value for key, value in step.job.items() if key != "snapshot"}
    if step.type == "pipeline" and PACKAGES in pipeline.properties:
        packages = {PACKAGES: pipeline.properties[PACKAGES]}
        job["properties"] = {**packages, **(job.get("properties") or {})}
    return {
        **job,
        "type": step.type,
        "name": name,
        "experiment_name": pipeline.experiment_name,
        "display_name": step.job.get("display_name") or step.name,
        "inputs": {key: _with_jobs(value, jobs) for key, value in step.inputs.items()},
        "outputs": dict(step.outputs),
        **({"parent_job_name": pipeline.name} if step.type == "command" else {}),
    }


def _with_jobs(value: Any, jobs: Mapping[str, str]) -> Any:
    if not isinstance(value, Mapping) or not bindings.is_bound(value.get("path")):
        return value
    path = str(value["path"])
    places = {}
    for name in bindings.names(path):
        of = bindings.reference(name, "")
        assert isinstance(of, FromStep)
        places[name] = output_uri(jobs[of.step], of.name)
    return {**value, "path": bindings.substituted(path, places)}


class _Resolver:
    def __init__(self, pipeline: PipelineJob) -> None:
        self._pipeline = pipeline
        self._problems: list[Problem] = []
        self._values = {name: plain(value) for name, value in pipeline.inputs.items()}
        self._optional: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._done: dict[str, Step] = {}
        self._writers: dict[str, str] = {}
        self._jobs = pipeline.jobs
        self._outputs = {name: plain(value) for name, value in pipeline.outputs.items()}
        if isinstance(pipeline.component, Mapping):
            self._read_component(pipeline.component)

    def _read_component(self, data: Mapping[str, Any]) -> None:
        with below("component"):
            component = parse_component(data)
            if not isinstance(component, PipelineComponent):
                hint = "name a pipeline component, or put the component into a step"
                raise SpecError(Problem(f"the component is a {component.type}", None, hint=hint))
            self._jobs = component.jobs
            self._problems += name_problems(component.jobs)
        for name in self._outputs.keys() - component.outputs.keys():
            listed = ", ".join(f"`{output}`" for output in component.outputs) or "none"
            message = f"the component has no output `{name}`"
            self._problem(message, f"outputs.{name}", f"its outputs: {listed}")
        for name, output in component.outputs.items():
            self._outputs[name] = {"type": output.type, **self._outputs.get(name, {})}
        self._optional = {name for name, declared in component.inputs.items() if declared.optional}
        self._values = self._checked("inputs", self._values, component.inputs, is_pipeline=True)

    def steps(self) -> dict[str, Step]:
        if isinstance(self._pipeline.component, str):
            hint = "give a file, or a registered component: azureml:NAME:VERSION"
            raise SpecError(
                Problem(f"component {self._pipeline.component!r} not found", "component", hint=hint)
            )
        for name, data in self._jobs.items():
            try:
                self._nodes[name] = read_node(name, data)
            except SpecError as error:
                self._problems += error.problems
        after = {name: self._after(name) for name in self._nodes}
        for name in self._ordered(after):
            self._done[name] = self._step(name, after[name])
        for name in self._outputs if not self._problems else ():
            if name not in self._writers:
                hint = f"add to a step: outputs: {{…: '${{{{parent.outputs.{name}}}}}'}}"
                self._problem(f"no step writes the output `{name}`", f"outputs.{name}", hint)
        if self._problems:
            raise SpecError(list(dict.fromkeys(self._problems)))
        return self._done

    def _problem(self, message: str, where: str, hint: str | None = None) -> None:
        self._problems.append(Problem(message, where, hint=hint or "correct it"))

    # ------------------------------------------------------------ dependencies

    def _after(self, name: str) -> tuple[str, ...]:
        """The steps that a step depends on."""
        dependencies: dict[str, None] = {}
        for key, value in self._nodes[name].inputs.items():
            where = f"jobs.{name}.inputs.{key}"
            text = value.get("path") if isinstance(value, Mapping) else value
            if not isinstance(text, str):
                continue
            try:
                for reference in bindings.references(text, where):
                    if isinstance(reference, FromStep) and self._exists(reference, name, where):
                        dependencies[reference.step] = None
                    elif isinstance(reference, FromParent):
                        self._require_input(reference.name, where)
            except SpecError as error:
                self._problems += error.problems
        return tuple(dependencies)

    def _exists(self, of: FromStep, name: str, where: str) -> bool:
        if of.step == name:
            self._problem(
                f"the step `{name}` reads its own {of.kind[:-1]}", where, "name another step"
            )
        elif of.step not in self._jobs:
            hint = nearest(of.step, self._jobs) or f"the steps are {', '.join(self._jobs)}"
            self._problem(f"there is no step `{of.step}`", where, hint)
        elif of.step not in self._nodes:
            return False  # a problem of its own
        elif of.kind == "outputs" and of.name not in (names := _output_names(self._nodes[of.step])):
            listed = ", ".join(f"`{output}`" for output in names) or "none"
            hint = nearest(of.name, names) or f"its outputs: {listed}"
            self._problem(f"the step `{of.step}` has no output `{of.name}`", where, hint)
        else:
            return True
        return False

    def _require_input(self, name: str, where: str) -> None:
        if name not in self._values and name not in self._optional:
            listed = ", ".join(f"`{key}`" for key in self._values) or "none"
            hint = nearest(name, self._values) or f"its inputs: {listed}"
            self._problem(f"the pipeline has no input `{name}`", where, hint)

    def _ordered(self, after: Mapping[str, tuple[str, ...]]) -> list[str]:
        sorter = graphlib.TopologicalSorter(after)
        try:
            return list(sorter.static_order())
        except graphlib.CycleError as error:
            # The sorter's cycle goes against the flow of data.
            cycle = " -> ".join(reversed(error.args[1]))
            where = f"jobs.{error.args[1][0]}"
            self._problem(f"the steps wait for each other: {cycle}", where, "remove one reference")
            raise SpecError(self._problems) from None

    # ------------------------------------------------------------ one step

    def _step(self, name: str, after: tuple[str, ...]) -> Step:
        node, where = self._nodes[name], f"jobs.{name}"
        inputs: dict[str, Any] = {}
        for key, value in node.inputs.items():
            try:
                bound = self._bound(value, f"{where}.inputs.{key}")
            except SpecError as error:
                self._problems += error.problems
                continue
            if bound is not None:
                inputs[key] = bound
        if node.declared is not None:
            is_pipeline = node.type == "pipeline"
            wrong = {
                key for key in node.inputs.keys() - inputs.keys() if not self._is_unset(node, key)
            }
            inputs = self._checked(f"{where}.inputs", inputs, node.declared, is_pipeline, wrong)
        outputs, written = self._step_outputs(node, where)
        return Step(
            name,
            node.type,
            self._with_defaults(node, where),
            inputs,
            outputs,
            after,
            written,
            node.component,
            node.deterministic,
        )

    def _is_unset(self, node: Node, key: str) -> bool:
        """Whether an input without a value is an optional one of the pipeline; otherwise what it
        refers to is a problem of its own."""
        value = node.inputs[key]
        text = value.get("path") if isinstance(value, Mapping) else value
        name = (bindings.whole(text) or "").removeprefix("parent.inputs.")
        return value is None or name in self._optional

    def _bound(self, value: Any, where: str) -> Any:
        """The value of an input with the pipeline's inputs; None for a missing optional one."""
        if isinstance(value, Mapping):
            fields = {k: v for k, v in value.items() if v is not None}
            if fields.keys() == {"value"}:
                return self._bound(fields["value"], where)
            if not bindings.is_bound(fields.get("path")):
                return fields
            path = self._bound(fields["path"], f"{where}.path")
            if isinstance(path, Mapping):
                return {**path, **{k: v for k, v in fields.items() if k != "path"}}
            return None if path is None else {**fields, "path": path}
        if not bindings.is_bound(value):
            return value
        if (name := bindings.whole(value)) is not None:
            return self._referred(bindings.reference(name, where))
        parts = {e: self._referred(bindings.reference(e, where)) for e in bindings.names(value)}
        data = {name: part for name, part in parts.items() if isinstance(part, Mapping)}
        if not data:
            texts = {name: "" if part is None else part for name, part in parts.items()}
            return bindings.substituted(value, texts)
        if len(data) == 1 and value.strip().startswith("${{"):
            # A path within data: ${{parent.jobs.prep.outputs.data}}/train.csv
            (of,) = data.values()
            path = bindings.substituted(value, {**parts, next(iter(data)): of["path"]})
            return {**of, "path": path}
        hint = "write the whole input as one `${{…}}`"
        raise SpecError(Problem("data cannot be part of a text", where, hint=hint))

    def _referred(self, of: FromParent | FromStep) -> Any:
        if isinstance(of, FromParent):
            return self._values.get(of.name)
        step = self._done.get(of.step)
        if step is None:
            return None  # a problem that is known
        if of.kind == "inputs":
            if of.name not in step.inputs:
                listed = ", ".join(f"`{key}`" for key in step.inputs) or "none"
                message = f"the step `{of.step}` has no input `{of.name}`"
                raise SpecError(Problem(message, None, hint=f"its inputs: {listed}"))
            return step.inputs[of.name]
        if of.name not in step.outputs:
            return None  # a problem that is known
        kind = step.outputs[of.name].get("type", "uri_folder")
        return {"type": kind, "path": f"${{{{parent.jobs.{of.step}.outputs.{of.name}}}}}"}

    def _checked(
        self,
        where: str,
        values: Mapping[str, Any],
        declared: Mapping[str, ComponentInput],
        is_pipeline: bool,
        wrong: Container[str] = (),
    ) -> dict[str, Any]:
        """The inputs of a component, with defaults and in the declared types. What a pipeline
        component does not declare is left out, as Azure does; see ``noted``. Those in ``wrong``
        have a problem of their own."""
        meant: set[str | None] = set()
        for name in () if is_pipeline else values.keys() - declared.keys():
            listed = ", ".join(f"`{key}`" for key in declared) or "none"
            hint = nearest(name, declared) or f"its inputs: {listed}"
            meant.add(nearest_name(name, declared))
            self._problem(f"the component has no input `{name}`", f"{where}.{name}", hint)
        made: dict[str, Any] = {}
        for name, of in declared.items():
            key = f"{where}.{name}"
            value = values.get(name, of.default)
            if value is None:
                if not of.optional and name not in wrong and name not in meant:
                    message = f"the input `{name}` is missing"
                    self._problem(
                        message, where.removesuffix(".inputs"), f"add `{name}` to its inputs"
                    )
                continue
            try:
                made[name] = _typed(value, of, key)
            except SpecError as error:
                self._problems += error.problems
        return made

    def _step_outputs(
        self, node: Node, where: str
    ) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
        """The outputs of a step, and those of the pipeline that they write."""
        made: dict[str, Mapping[str, Any]] = {}
        written: dict[str, str] = {}
        declared = node.declared_outputs or {}
        for name in (
            node.outputs.keys() - declared.keys() if node.declared_outputs is not None else ()
        ):
            listed = ", ".join(f"`{output}`" for output in declared) or "none"
            message, key = f"the component has no output `{name}`", f"{where}.outputs.{name}"
            self._problem(message, key, nearest(name, declared) or f"its outputs: {listed}")
        for name in _output_names(node):
            value = node.outputs.get(name)
            own: dict[str, Any] = {"type": declared[name].type} if name in declared else {}
            if name in declared and declared[name].mode:
                own["mode"] = str(declared[name].mode)
            if isinstance(value, Mapping):
                own |= {k: v for k, v in value.items() if v is not None}
                # Other expressions, such as ${{name}}, are for the job's own path.
                bound = (bindings.whole(own.get("path")) or "").startswith("parent.")
                value = own.pop("path") if bound else None
            if value is not None and (target := self._target(value, f"{where}.outputs.{name}")):
                own = {**own, **self._outputs[target]}
                written[target] = name
                if target in self._writers:
                    message = f"`{target}` is also written by the step `{self._writers[target]}`"
                    self._problem(message, f"{where}.outputs.{name}", "use another output")
                self._writers[target] = where.removeprefix("jobs.")
            made[name] = own
        return made, written

    def _target(self, value: Any, where: str) -> str | None:
        """The pipeline's output that an output of a step is bound to."""
        name = bindings.whole(value) or ""
        target = name.removeprefix("parent.outputs.")
        if target == name:
            hint = "write `${{parent.outputs.NAME}}`, or a mapping"
            self._problem(f"`{value}` is not an output", where, hint)
            return None
        if target not in self._outputs:
            listed = ", ".join(f"`{output}`" for output in self._outputs) or "none"
            hint = nearest(target, self._outputs) or f"its outputs: {listed}"
            self._problem(f"the pipeline has no output `{target}`", where, hint)
            return None
        return target

    def _with_defaults(self, node: Node, where: str) -> dict[str, Any]:
        """The step's job with the pipeline's compute and settings."""
        job, settings = dict(node.job), self._pipeline.settings
        default = settings.default_compute or self._pipeline.compute
        compute = job.get("compute")
        if bindings.is_bound(compute):
            try:
                job["compute"] = self._bound(compute, f"{where}.compute")
            except SpecError as error:
                self._problems += error.problems
        if default is not None and job.get("compute") is None:
            job["compute"] = default
        if node.type == "pipeline":
            mine = settings.model_dump(exclude_unset=True)
            job["settings"] = {**mine, **(job.get("settings") or {})}
        if node.type in ("pipeline", "sweep") and not self._pipeline.reuse_nodes:
            job = {"reuse_nodes": False, **job}
        return job


def _output_names(node: Node) -> list[str]:
    return list(dict.fromkeys([*(node.declared_outputs or {}), *node.outputs]))


def _typed(value: Any, of: ComponentInput, where: str) -> Any:
    """A value in the type that a component declares. Raises SpecError."""
    if of.type in LITERALS:
        if isinstance(value, Mapping):
            hint = f"give a value of the type `{of.type}`"
            raise SpecError(Problem(f"data cannot be a `{of.type}`", where, hint=hint))
        return literal(value, of, where)
    if not isinstance(value, Mapping):
        if not isinstance(value, str):
            hint = "give `path: …`"
            raise SpecError(Problem(f"`{value}` is not the path of data", where, hint=hint))
        value = {"path": value}
    mode = {"mode": str(of.mode)} if of.mode else {}
    return {"type": of.type, **mode, **value}


def plain(value: Any) -> Any:
    """A model's data without default values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return value
