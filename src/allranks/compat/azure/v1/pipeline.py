"""`azureml.pipeline.core` and `azureml.pipeline.steps`."""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.v1.arguments import Bound
from allranks.compat.azure.v1.data.datasets import DatasetConsumptionConfig
from allranks.compat.azure.v1.data.datastore import MODES
from allranks.compat.azure.v1.data.output import OutputAsInput, OutputFileDatasetConfig, reference
from allranks.compat.azure.v1.exceptions import UserErrorException, no_more, not_there
from allranks.compat.azure.v1.experiment import Experiment
from allranks.compat.azure.v1.published import PublishedPipeline, literal, parameter_values
from allranks.compat.azure.v1.run import Run
from allranks.compat.azure.v1.run_config import RunConfiguration, ScriptRunConfig
from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document

_NUMBERS = itertools.count()


class PipelineParameter:
    """A value that ``submit`` may change."""

    def __init__(self, name: str, default_value: Any) -> None:
        self.name, self.default_value = name, default_value

    def bind(self, bound: Bound) -> str:
        # In quotes, as its value is one argument.
        return f'"{bound.input(self.name, f"${{{{parent.inputs.{identifier(self.name)}}}}}")}"'


class TrainingOutput:
    """What a HyperDriveStep leaves: the `Metrics` of its trials, or of the best one the `Model`, a
    file or folder that it wrote to ``model_file``."""

    def __init__(
        self,
        type: str,
        iteration: object = None,
        metric: object = None,
        model_file: str | None = None,
    ) -> None:
        if iteration is not None or metric is not None:
            hint = "leave them out: the best trial is that of the sweep's primary metric"
            raise UserErrorException("TrainingOutput takes no iteration and no metric", hint=hint)
        if type == "Model" and not model_file:
            raise UserErrorException("a Model needs its file", hint="give `model_file`")
        self.type, self.model_file = type, model_file


class PipelineData:
    """A folder that one step writes and others read. ``training``: what a HyperDriveStep leaves
    there; ``of_pipeline``: its name as an output of the pipeline."""

    def __init__(
        self,
        name: str,
        datastore: Any = None,
        output_name: str | None = None,
        output_mode: str = "mount",
        output_path_on_compute: str | None = None,
        output_overwrite: bool | None = None,
        data_type: str | None = None,
        is_directory: bool | None = None,
        pipeline_output_name: str | None = None,
        training_output: TrainingOutput | None = None,
        **more: Any,
    ) -> None:
        no_more("PipelineData", more)
        self.name, self.of_pipeline = output_name or name, pipeline_output_name
        self.training = training_output
        file = training_output and training_output.model_file
        is_file = bool(PurePosixPath(file).suffix) if file else False
        self.kind = "uri_file" if is_directory is False or is_file else "uri_folder"
        self.producer: Step | None = None

    def as_input(self, input_name: str | None = None) -> PipelineData:
        return self

    as_dataset = as_mount = as_download = as_input

    def data(self) -> Document:
        """The output of its step."""
        if self.of_pipeline is None:
            return {"type": self.kind}
        path = f"${{{{parent.outputs.{identifier(self.of_pipeline)}}}}}"
        return {"type": self.kind, "path": path}


class Step:
    """A step. It comes after those whose data it reads, and those of ``run_after``."""

    def __init__(
        self,
        name: str,
        config: ScriptRunConfig,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        allow_reuse: bool = True,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self._config, self.allow_reuse = name, config, allow_reuse
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        self._params = dict(params or {})
        self.after: list[Step] = []
        self.node = f"{identifier(name)}_{next(_NUMBERS)}"
        # What the script or the command is given, which may be data.
        words = config.command if isinstance(config.command, list | tuple) else None
        self._is_command = words is not None
        self._words = [*config.arguments] if words is None else [*words]
        for output in (*self._outputs, *self._words):
            if isinstance(output, OutputFileDatasetConfig) or output in self._outputs:
                output.producer = self

    def run_after(self, step: Step) -> None:
        self.after.append(step)

    def parameters(self) -> list[PipelineParameter]:
        values = (*self._words, *self._params.values(), *self._inputs)
        data = (_parameter_of(value) or value for value in values)
        return [value for value in data if isinstance(value, PipelineParameter)]

    def before(self) -> list[Step]:
        """The steps that it comes after."""
        read = (*self._inputs, *self._words)
        data = [each.output if isinstance(each, OutputAsInput) else each for each in read]
        made = [getattr(each, "producer", None) for each in data]
        return [each for each in (*made, *self.after) if each is not None and each is not self]

    def settings(self) -> list[PipelineParameter]:
        """Parameters that are no inputs: their values are fixed when the pipeline is submitted."""
        return []

    def _configured(self, values: Mapping[str, Any]) -> ScriptRunConfig:
        """What runs; ``values`` are those of all parameters."""
        config = copy.copy(self._config)
        words = [self._argument(word) for word in self._words]
        if self._is_command:
            config.command = words
        else:
            config.arguments = words
        return config

    def job_of(self, config: ScriptRunConfig, bound: Bound) -> Document:
        """The job, whose inputs and outputs are added to ``bound``."""
        return config.job(bound)

    def to_dict(self, waited_for: Iterable[Step], values: Mapping[str, Any]) -> Document:
        """The step of a job file. ``waited_for`` are those that others come after."""
        bound = Bound()
        config = self._configured(values)
        for each in (*self._inputs, *self._outputs):
            self._argument(each).bind(bound)
        spec = self.job_of(config, bound)
        if not self.allow_reuse:
            # A step is reused if nothing differs.
            variables = spec.get("trial", spec).setdefault("environment_variables", {})
            variables["AZUREML_NOT_REUSED"] = uuid.uuid4().hex
        for name, value in self._params.items():
            bound.input(name, _text(value))
        for number, step in enumerate(self.after):
            bound.input(f"after_{number}", f"${{{{parent.jobs.{step.node}.outputs.done}}}}")
        if self in waited_for:
            bound.output("done", {"type": "uri_folder"})
        spec |= {"inputs": bound.inputs, "outputs": bound.outputs, "display_name": self.name}
        return {key: each for key, each in spec.items() if each != {}}

    def outputs(self) -> list[PipelineData]:
        """Those that are also outputs of the pipeline."""
        named = (data for data in self._outputs if getattr(data, "of_pipeline", None))
        return [data for data in named if not is_metrics(data)]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, PipelineData):
            return _Produced(value, self)
        if (parameter := _parameter_of(value)) is not None:
            mode = value.mode if isinstance(value, DatasetConsumptionConfig) else value[1].mode
            return _DataOfParameter(parameter, mode)
        return value


def _parameter_of(value: Any) -> PipelineParameter | None:
    """Of data that ``submit`` may change: a pair of a parameter and how its path is bound, or a
    dataset that is a parameter."""
    if isinstance(value, DatasetConsumptionConfig):
        return value.dataset if isinstance(value.dataset, PipelineParameter) else None
    is_pair = isinstance(value, tuple) and len(value) == 2
    return value[0] if is_pair and isinstance(value[0], PipelineParameter) else None


class _DataOfParameter:
    """The data of a parameter, as an input."""

    def __init__(self, parameter: PipelineParameter, mode: str) -> None:
        self._parameter, self._mode = parameter, mode

    def bind(self, bound: Bound) -> str:
        name = self._parameter.name
        kind = self._parameter.default_value.data()["type"]
        path = f"${{{{parent.inputs.{identifier(name)}}}}}"
        mode = MODES["mount" if self._mode == "direct" else self._mode]
        return bound.input(name, {"type": kind, "path": path, "mode": mode})


class _Produced:
    """Data of the pipeline, as an output of the step that makes it and an input of others."""

    def __init__(self, data: PipelineData, step: Step) -> None:
        self._data, self._step = data, step

    def bind(self, bound: Bound) -> str:
        if self._data.producer is None:
            hint = "list it in `outputs` of the step that writes it"
            raise UserErrorException(f"no step makes the data {self._data.name!r}", hint=hint)
        if is_metrics(self._data):
            hint = "read them after the run: pipeline_run.get_pipeline_output(…)"
            raise UserErrorException("metrics of a HyperDriveStep are no data of steps", hint=hint)
        if self._data.producer is self._step:
            return bound.output(self._data.name, self._data.data())
        return bound.input(self._data.name, reference(self._data))


def is_metrics(data: Any) -> bool:
    """Whether it is the metrics of a sweep, which are in its record and in no file."""
    training = getattr(data, "training", None)
    return training is not None and training.type == "Metrics"


def _text(value: Any) -> Any:
    if isinstance(value, PipelineParameter):
        return f"${{{{parent.inputs.{identifier(value.name)}}}}}"
    return value


class PythonScriptStep(Step):
    """A script as a step."""

    def __init__(
        self,
        script_name: str,
        name: str | None = None,
        arguments: Sequence[Any] | None = None,
        compute_target: Any = None,
        runconfig: RunConfiguration | None = None,
        runconfig_pipeline_params: object = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        source_directory: str | None = None,
        allow_reuse: bool = True,
        version: str | None = None,
        hash_paths: object = None,
    ) -> None:
        config = ScriptRunConfig(
            source_directory,
            script_name,
            arguments or (),
            _copy(runconfig),
            compute_target=compute_target,
        )
        super().__init__(
            name or script_name, config, inputs or (), outputs or (), allow_reuse, params
        )


class CommandStep(Step):
    """A command as a step."""

    def __init__(
        self,
        command: Any = None,
        name: str | None = None,
        compute_target: Any = None,
        runconfig: Any = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        source_directory: str | None = None,
        allow_reuse: bool = True,
        **more: Any,
    ) -> None:
        no_more("CommandStep", more, ("version", "runconfig_pipeline_params"))
        if isinstance(runconfig, ScriptRunConfig):
            config = runconfig
        else:
            config = ScriptRunConfig(
                source_directory,
                command=command,
                run_config=_copy(runconfig),
                compute_target=compute_target,
            )
        super().__init__(name or "command", config, inputs or (), outputs or (), allow_reuse)


class EstimatorStep(PythonScriptStep):
    """Not there: estimators are deprecated."""

    def __init__(self, *_: Any, **__: Any) -> None:
        not_there("EstimatorStep", "use PythonScriptStep with a runconfig")


class StepSequence:
    """Steps one after the other."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        for one, two in itertools.pairwise(self.steps):
            two.run_after(one)


class Pipeline:
    """Steps, with those whose data they read."""

    submit_keywords = ("pipeline_parameters", "regenerate_outputs", "continue_on_step_failure")

    def __init__(
        self,
        workspace: Any,
        steps: Any,
        description: str | None = None,
        default_datastore: Any = None,
        default_source_directory: str | None = None,
        **more: Any,
    ) -> None:
        no_more("Pipeline", more, ("resolve_closure",))
        self.workspace, self.description = workspace, description
        self._steps: list[Step] = []
        for step in _flat(steps):
            self._add(step)

    def _add(self, step: Step) -> None:
        if step not in self._steps:
            self._steps.append(step)
            for earlier in step.before():
                self._add(earlier)

    def job(
        self,
        pipeline_parameters: Mapping[str, Any] | None = None,
        regenerate_outputs: bool = False,
        continue_on_step_failure: bool = False,
    ) -> Document:
        """The pipeline of a job file. Raises UserErrorException."""
        inputs = _defaults(one for step in self._steps for one in step.parameters())
        values = inputs | _defaults(one for step in self._steps for one in step.settings())
        values |= parameter_values(values, pipeline_parameters)
        waited_for = [each for step in self._steps for each in step.after]
        pipeline: Document = {
            "type": "pipeline",
            "settings": {
                "continue_on_step_failure": continue_on_step_failure,
                "force_rerun": regenerate_outputs,
            },
            "jobs": {each.node: each.to_dict(waited_for, values) for each in reversed(self._steps)},
        }
        if outputs := [data for step in self._steps for data in step.outputs()]:
            pipeline["outputs"] = {
                identifier(str(data.of_pipeline)): {"type": data.kind} for data in outputs
            }
        if inputs:
            pipeline["inputs"] = {key: literal(values[key]) for key in inputs}
        return pipeline | ({"description": self.description} if self.description else {})

    def validate(self) -> list[Any]:
        """What is wrong: nothing here; ``submit`` checks it."""
        return []

    def submit(
        self,
        experiment_name: str,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool = False,
        regenerate_outputs: bool = False,
        **more: Any,
    ) -> Run:
        no_more("Pipeline.submit", more, ("credential_passthrough",))
        return Experiment(self.workspace, experiment_name).submit(
            self,
            pipeline_parameters=pipeline_parameters,
            continue_on_step_failure=continue_on_step_failure,
            regenerate_outputs=regenerate_outputs,
        )

    def publish(
        self,
        name: str | None = None,
        description: str | None = None,
        version: str | None = None,
        continue_on_step_failure: bool | None = None,
    ) -> PublishedPipeline:
        """Keep it on the server, to be submitted with other values of its parameters."""
        job = self.job(continue_on_step_failure=bool(continue_on_step_failure))
        return PublishedPipeline.make(
            self.workspace, job, name or "pipeline", description or self.description, version
        )


def _defaults(parameters: Iterable[PipelineParameter]) -> Document:
    return {identifier(parameter.name): parameter.default_value for parameter in parameters}


def _copy(config: RunConfiguration | None) -> RunConfiguration:
    made = RunConfiguration()
    if config is not None:
        made.__dict__.update(config.__dict__)
    return made


def _flat(steps: Any) -> Iterable[Step]:
    for step in steps.steps if isinstance(steps, StepSequence) else steps:
        if isinstance(step, (list, StepSequence)):
            yield from _flat(step)
        else:
            yield step
