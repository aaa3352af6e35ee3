"""Batch endpoints and their deployments, with Azure ML v2's keys. An invocation is a pipeline job:
its one step runs mini-batches as a parallel step does, or its steps are those of a component."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from allranks.errors import Problem, SpecError, UsageError
from allranks.spec.endpoint import (
    CodeConfiguration,
    DeploymentName,
    EndpointName,
    InlineModel,
    model_of,
    model_reference,
)
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import Models, validated, without_none
from allranks.spec.fields.scalars import (
    Count,
    EmptyableText,
    Free,
    Integer,
    PathText,
    Seconds,
    Text,
    Texts,
    Variable,
    matching,
)
from allranks.spec.job_keys import AnyEnvironment
from allranks.spec.job_parts import Resources, snake
from allranks.spec.pipeline.component import LITERALS, parse_component
from allranks.spec.pipeline.parallel import RetrySettings

# The step of an invocation, its input and its output, as in Azure ML where jobs show it.
STEP, INPUT, OUTPUT = "batchscoring", "job_input", "score"
# The tags of the jobs of an endpoint and of its deployments.
ENDPOINT_TAG, DEPLOYMENT_TAG = "batch_endpoint", "batch_deployment"
_RUNNER = "allranks_parallel_step"

# Accepted without effect: why.
_NOTED: Mapping[str, str] = {
    "auth_mode": "who may submit jobs may invoke it",
    "identity": "ranks run as the user of the compute",
    "location": "it is here",
    "logging_level": "the scoring script decides",
    "instance_type": "the compute decides",
}
_FILE_NAME = matching(r"[^/\0]+", "must be a name without `/`", "it is in the output `score`")
_Snake = BeforeValidator(snake)


class BatchDefaults(Part):
    """What an invocation gets that names no deployment."""

    deployment_name: DeploymentName | None = None


class BatchEndpoint(Part):
    """A name for deployments that score data in jobs."""

    schema_: Text | None = Field(default=None, alias="$schema")
    name: EndpointName
    type: Text | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    auth_mode: Text | None = None
    defaults: BatchDefaults = Field(default_factory=BatchDefaults)
    identity: Free | None = None
    location: Text | None = None


class BatchRetrySettings(RetrySettings):
    """Of a mini-batch: ``timeout`` in seconds, and how often it is tried again."""

    timeout: Seconds = 30.0


class ModelBatchDeploymentSettings(Part):
    """How the files of the input are scored."""

    mini_batch_size: Count = 10
    instance_count: Count | None = None
    max_concurrency_per_instance: Count = 1
    output_action: Annotated[Literal["append_row", "summary_only"], _Snake] = "append_row"
    output_file_name: Annotated[Text, BeforeValidator(_FILE_NAME)] = "predictions.csv"
    retry_settings: BatchRetrySettings = Field(default_factory=BatchRetrySettings)
    environment_variables: dict[Variable, EmptyableText] = Field(default_factory=dict)
    error_threshold: Annotated[Integer, Field(ge=-1)] = -1
    logging_level: Text | None = None


class BatchKeys(Part):
    """What all batch deployments have."""

    schema_: Text | None = Field(default=None, alias="$schema")
    name: DeploymentName
    endpoint_name: EndpointName
    type: Text | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)


class ModelKeys(BatchKeys):
    """What scores: a model with or without a scoring script."""

    model: Annotated[InlineModel | Text | None, BeforeValidator(model_of)] = None
    code_configuration: CodeConfiguration | None = None
    code_path: PathText | None = None
    scoring_script: Text | None = None
    environment: AnyEnvironment | None = None
    compute: Text | None = None
    resources: Resources = Field(default_factory=Resources)


# What an invocation may change of them.
SETTINGS = {*ModelBatchDeploymentSettings.model_fields}


class BatchDeployment(ModelKeys, ModelBatchDeploymentSettings):
    """A model, or a scoring script with `init()` and `run(mini_batch)`, for the files of a
    folder."""


class ModelBatchDeployment(ModelKeys):
    """The same with its settings apart."""

    settings: ModelBatchDeploymentSettings = Field(default_factory=ModelBatchDeploymentSettings)


def _component(value: object) -> object:
    """A component of a program: its reference if it is registered, else its data."""
    if callable(made := getattr(value, "component", None)):  # a function with `@pipeline`
        return made()
    return getattr(value, "id", None) or getattr(value, "_data", value)


def _job(value: object) -> object:
    """A pipeline job of a program: its name if it was submitted, else its data."""
    if isinstance(value, str | Mapping) or value is None:
        return value
    return getattr(value, "name", None) or value.to_dict()  # type: ignore[attr-defined]


class PipelineComponentBatchDeployment(BatchKeys):
    """A pipeline component, or the pipeline of a job, whose inputs are those of an invocation."""

    component: Annotated[Free | Text | None, BeforeValidator(_component)] = None
    job_definition: Annotated[Free | Text | None, BeforeValidator(_job)] = None
    settings: Free = Field(default_factory=dict)

    @property
    def job_name(self) -> str:
        """The name of a submitted job, '' if there is none."""
        job = self.job_definition
        return re.split("[:/]", job)[-1] if isinstance(job, str) else ""


AnyBatchDeployment = BatchDeployment | PipelineComponentBatchDeployment


# One of them has the steps of a pipeline's deployment.
_PIPELINES = ("component", "job_definition")


def is_batch(data: Mapping[str, Any]) -> bool:
    """Whether a file of an endpoint or a deployment is of a batch one."""
    schema = str(data.get("$schema") or "").lower()
    pipeline = "endpoint_name" in data and not data.keys().isdisjoint(_PIPELINES)
    kinds = pipeline or "defaults" in data
    batch = ("mini_batch_size", "output_action", "output_file_name")
    apart = data.get("settings")
    settings = {*apart} if isinstance(apart, Mapping) else set()
    return (
        "batch" in schema
        or kinds
        or data.get("type") in ("batch", "model", "pipeline")
        or not (data.keys() | settings).isdisjoint(batch)
    )


def parse_batch_endpoint(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> BatchEndpoint:
    """Raises one SpecError with all problems."""
    models: Models = {"": (BatchEndpoint,), "defaults": (BatchDefaults,)}
    return validated(BatchEndpoint, without_none(data), models, lines, file)


def parse_batch_deployment(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> AnyBatchDeployment:
    """Raises one SpecError with all problems."""
    if _is_pipeline(data):
        kind = PipelineComponentBatchDeployment
        pipeline = validated(kind, without_none(data), {"": (kind,)}, lines, file, _of_pipeline)
        if isinstance(component := component_of(pipeline), Mapping):
            parse_component({"type": "pipeline", **component})
        return pipeline
    return validated(BatchDeployment, without_none(_flat(data)), _MODELS, lines, file, _across)


_MODELS: Models = {
    "": (BatchDeployment,),
    "code_configuration": (CodeConfiguration,),
    "retry_settings": (BatchRetrySettings,),
    "resources": (Resources,),
    "model": (InlineModel,),
}


def _of_pipeline(deployment: PipelineComponentBatchDeployment) -> Iterator[Problem]:
    if (deployment.component is None) == (deployment.job_definition is None):
        hint = "component: azureml:NAME@latest, or job_definition: azureml:JOB"
        yield Problem("a pipeline's deployment has a component or a job", hint=hint)


def _is_pipeline(data: Mapping[str, Any]) -> bool:
    schema = str(data.get("$schema") or "").lower()
    own = not data.keys().isdisjoint(_PIPELINES)
    return data.get("type") == "pipeline" or own or "pipelinecomponent" in schema


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """A model's deployment with its settings among its keys, which hold over them: `--set`."""
    settings = data.get("settings")
    made = {key: value for key, value in data.items() if key != "settings"}
    if settings is not None and not isinstance(settings, Mapping):
        raise SpecError(Problem("`settings` has keys", "settings", hint="settings: {KEY: VALUE}"))
    made = {**(settings or {}), **made}
    if (count := made.pop("instance_count", None)) is not None:
        made["resources"] = {**(made.get("resources") or {}), "instance_count": count}
    script, code = made.pop("scoring_script", None), made.pop("code_path", None)
    if script is not None:
        made["code_configuration"] = {"code": code or ".", "scoring_script": script}
    return made


def _across(made: BatchDeployment) -> Iterator[Problem]:
    if made.code_configuration is None and made.model is None:
        hint = "model: azureml:NAME:VERSION, with code_configuration unless it is MLflow's"
        yield Problem("a deployment needs a model or a scoring script", hint=hint)
    if isinstance(made.model, InlineModel) and made.model.type == "triton_model":
        hint = "write a scoring script"
        yield Problem("Triton is not started here", "model.type", hint=hint)


def notes(data: Mapping[str, Any]) -> list[str]:
    """A sentence for each key without effect."""
    several = data if _is_pipeline(data) else _flat(data)
    return [
        f"no effect here: {key} ({why})"
        for key, why in _NOTED.items()
        if several.get(key) is not None
    ]


def component_of(made: AnyBatchDeployment) -> Any:
    """The pipeline component that an invocation runs, or its file or name; None if the server makes
    it of a job."""
    if not isinstance(made, BatchDeployment):
        job = made.job_definition
        return component_of_job(job) if isinstance(job, Mapping) else made.component
    data = made.model_dump(mode="json", exclude_unset=True, by_alias=True)
    keys = ("environment", "environment_variables", "compute", "resources")
    inputs: dict[str, Any] = {INPUT: f"${{{{parent.inputs.{INPUT}}}}}"}
    if (path := model_reference(made.model) or _path(made.model)) is not None:
        inputs["model"] = {"type": "custom_model", "path": path}
    step = {
        "type": "command",
        "command": command_of(made),
        "distribution": {
            "type": "pytorch",
            "process_count_per_instance": made.max_concurrency_per_instance,
        },
        **{key: data[key] for key in keys if key in data},
        "inputs": inputs,
        "outputs": {OUTPUT: f"${{{{parent.outputs.{OUTPUT}}}}}"},
    }
    if made.code_configuration is not None:
        step["code"] = made.code_configuration.code
    return {
        "type": "pipeline",
        "inputs": {INPUT: {"type": "uri_folder"}},
        "outputs": {OUTPUT: {"type": "uri_folder"}},
        "jobs": {STEP: step},
    }


def component_of_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The component that a pipeline job runs, whose inputs have the job's literals by default."""
    component = job.get("component")
    made: dict[str, Any] = {"type": "pipeline", "jobs": job.get("jobs")}
    if isinstance(component, Mapping):
        made = dict(component)
    inputs = {name: dict(item or {}) for name, item in (made.get("inputs") or {}).items()}
    for name, value in (job.get("inputs") or {}).items():
        value = _value_of(value)
        if isinstance(value, Mapping):
            inputs.setdefault(name, {"type": _type_of(value)})
        else:
            kind = _LITERAL_TYPES.get(type(value), "string")
            inputs[name] = {"type": kind, **inputs.get(name, {}), "default": value}
    outputs = {name: {"type": _type_of(item)} for name, item in (job.get("outputs") or {}).items()}
    return {**made, "inputs": inputs, "outputs": {**outputs, **(made.get("outputs") or {})}}


def _type_of(data: Any) -> str:
    kind = data.get("type") if isinstance(data, Mapping) else None
    return str(kind or "uri_folder")


def settings_of_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a pipeline job, with its compute for the steps that name none."""
    compute = {"default_compute": job["compute"]} if job.get("compute") else {}
    return {**compute, **(job.get("settings") or {})}


_LITERAL_TYPES = {bool: "boolean", int: "integer", float: "number"}


def _value_of(value: Any) -> Any:
    """An input's literal, which may be the `value` of its keys."""
    return value["value"] if isinstance(value, Mapping) and "value" in value else value


def _path(model: InlineModel | str | None) -> str | None:
    return model.path if isinstance(model, InlineModel) else None


def command_of(made: BatchDeployment) -> str:
    """The command of the step that scores."""
    script = made.code_configuration
    options = {
        "entry_script": script.scoring_script if script is not None else None,
        "mini_batch_size": made.mini_batch_size,
        "mini_batch_error_threshold": -1,
        "error_threshold": made.error_threshold,
        "file_name": made.output_file_name if made.output_action == "append_row" else None,
        **made.retry_settings.model_dump(),
    }
    model = ' "${{inputs.model}}"' if made.model is not None else ""
    words = shlex.quote(json.dumps(options))
    places = f'"${{{{inputs.{INPUT}}}}}" "${{{{outputs.{OUTPUT}}}}}"'
    return f"python -m {_RUNNER} {words} {places}{model} --"


def with_changes(
    deployment: Mapping[str, Any], component: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A deployment and its component with ``changes`` of its keys. Raises UsageError for what comes
    with files, and SpecError."""
    data = {**deployment, **changes}
    inline = {key for key in ("model", "environment") if isinstance(data.get(key), Mapping)}
    if files := changes.keys() & {"code_configuration", *_PIPELINES, *inline}:
        raise UsageError("this comes with files", where=min(files), hint="-f FILE --set KEY=VALUE")
    made = parse_batch_deployment(data)
    if not isinstance(made, BatchDeployment):
        return data, dict(component)
    fresh = component_of(made)["jobs"][STEP]
    own = {"command", "distribution", "resources", "environment_variables", "compute", *changes}
    kept = {key: value for key, value in component["jobs"][STEP].items() if key not in own}
    step = {**kept, **{key: fresh[key] for key in own & fresh.keys()}}
    return data, {**component, "jobs": {STEP: step}}


def of_request(
    data: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The inputs, outputs and settings of a request of Azure ML's, as a file has them. Raises
    SpecError."""
    keys = ("InputData", "OutputData")
    try:
        properties = data.get("properties") or {}
        sections = [properties.get(key) or {} for key in keys]
        inputs, outputs = [
            {name: _of_request(item) for name, item in section.items()} for section in sections
        ]
        if dataset := properties.get("dataset"):  # of Azure's first version
            path = dataset.get("Path") or "azureml:{datasetName}:{datasetVersion}".format(**dataset)
            inputs[INPUT] = {"type": "uri_folder", "path": path}
        settings = {str(snake(key)): value for key, value in properties.items()}
        settings |= (properties.get("Resource") or {}) and {
            "instance_count": properties["Resource"]["instanceCount"]
        }
    except (AttributeError, KeyError, TypeError):
        example = '{"data": {"JobInputType": "UriFolder", "Uri": "azureml:NAME:1"}}'
        hint = f'{{"properties": {{"InputData": {example}}}}}'
        message = "InputData or OutputData is malformed"
        raise SpecError(Problem(message, "properties", hint=hint)) from None
    return inputs, outputs, {key: settings[key] for key in SETTINGS & settings.keys()}


def _of_request(item: Mapping[str, Any]) -> Any:
    kind = snake(item.get("JobInputType") or item.get("JobOutputType"))
    return item["Value"] if kind == "literal" else {"type": kind, "path": item["Uri"]}


def invocation(
    deployment: Mapping[str, Any],
    component: Mapping[str, Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> dict[str, Any]:
    """The pipeline job of an invocation of ``deployment``, the keys of its file. ``overrides``:
    settings of a model's deployment. Raises UsageError."""
    made = parse_batch_deployment(deployment)
    values = {name: _value(value) for name, value in inputs.items()}
    job: dict[str, Any] = {"type": "pipeline", "component": component, "outputs": dict(outputs)}
    if isinstance(made, BatchDeployment):
        job["outputs"], name = _score(outputs)
        overrides = {**overrides, **({"output_file_name": name} if name else {})}
        job["component"] = _changed(component, deployment, overrides)
        job["settings"] = {"force_rerun": True}
        if len(values) != 1:
            hint = "a model has one input: --input PATH, or -f FILE with `inputs`"
            why = f"what is to be scored? {len(values)} inputs are given"
            raise UsageError(why, where="inputs", hint=hint)
        (value,) = values.values()
        kind = value.get("type") if isinstance(value, Mapping) else None
        if kind is not None:
            job["component"]["inputs"] = {INPUT: {"type": kind}}
        values = {INPUT: value}
    elif overrides:
        hint = "they are the keys of a model's deployment"
        raise UsageError("a pipeline has no mini-batches", where=min(overrides), hint=hint)
    else:
        job["settings"] = dict(made.settings)
    job["inputs"] = values
    job["experiment_name"] = made.endpoint_name
    job["display_name"] = f"{made.endpoint_name}/{made.name}"
    job["tags"] = {ENDPOINT_TAG: made.endpoint_name, DEPLOYMENT_TAG: made.name}
    return job


def _score(outputs: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The one output of a model, whatever it is called, and the name of its file, if it has one."""
    if len(outputs) > 1:
        raise UsageError("a model has one output", where="outputs", hint=f"it is `{OUTPUT}`")
    place = next(iter(outputs.values()), {"type": "uri_folder"})
    if not isinstance(place, Mapping) or place.get("type") != "uri_file" or "path" not in place:
        return {OUTPUT: place}, ""
    folder, _, name = str(place["path"]).rpartition("/")
    return {OUTPUT: {**place, "type": "uri_folder", "path": folder or "."}}, name


def _changed(
    component: Mapping[str, Any], deployment: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """The component of a model's deployment with other numbers."""
    step = dict(component["jobs"][STEP])
    if overrides:
        made = parse_batch_deployment({**_flat(deployment), **overrides})
        assert isinstance(made, BatchDeployment)
        step |= {key: component_of(made)["jobs"][STEP][key] for key in ("command", "distribution")}
        step["resources"] = made.resources.model_dump(mode="json", exclude_defaults=True)
    return {**component, "jobs": {STEP: step}}


def _value(value: Any) -> Any:
    """An input: data, or the value of a literal, which Azure's files have as its ``default``."""
    if not isinstance(value, Mapping) or "path" in value:
        return value
    key = "value" if "value" in value else "default"
    if value.get("type") in LITERALS and key in value:
        return value[key]
    raise SpecError(Problem("this input has no path", "inputs", hint="type: uri_folder, path: …"))
