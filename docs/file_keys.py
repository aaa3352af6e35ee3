"""The keys of files as tables, from the models that read them."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from allranks.spec import batch, endpoint, job, job_keys, job_parts, retry, schedule, services
from allranks.spec.compute import Compute
from allranks.spec.data import Data
from allranks.spec.datastore import Datastore
from allranks.spec.descriptions import FIELDS
from allranks.spec.model import Model
from allranks.spec.pipeline import component, parallel
from allranks.spec.pipeline import job as pipeline
from allranks.spec.pipeline.nodes import ComponentNode
from allranks.spec.sweep import early_termination, search_space
from allranks.spec.sweep import job as sweep

Kinds = Mapping[str, tuple[type[BaseModel], ...]]

# The models of a job file, by the key that they stand under; `*` is a name of the user's.
JOB: Kinds = {
    "": (job.CommandJob,),
    "inputs.*": (job_parts.Input,),
    "outputs.*": (job_parts.Output,),
    "environment": (job_parts.Environment,),
    "environment.build": (job_parts.BuildContext,),
    "resources": (job_parts.Resources,),
    "distribution": (
        job_parts.PyTorchDistribution,
        job_parts.MpiDistribution,
        job_parts.TensorFlowDistribution,
        job_parts.DeepSpeedDistribution,
        job_parts.HorovodDistribution,
        job_parts.JaxDistribution,
        job_parts.RayDistribution,
        job_parts.NoDistribution,
    ),
    "limits": (job_parts.Limits,),
    "retry": (retry.Retry,),
    "on_failure": (job_parts.OnFailure,),
    "session": (job_parts.Session,),
    "retry.budgets": (retry.Budgets,),
    "metrics.*": (job_parts.Metric,),
    "queue_settings": (job_parts.QueueSettings,),
    "services.*": (
        services.JobService,
        services.SshJobService,
        services.JupyterLabJobService,
        services.TensorBoardJobService,
        services.VsCodeJobService,
    ),
    "identity": (
        services.ManagedIdentityConfiguration,
        services.UserIdentityConfiguration,
        services.AmlTokenConfiguration,
    ),
}
# The same of a sweep.
SWEEP: Kinds = {
    "": (sweep.SweepJob,),
    "trial": (sweep.Trial,),
    "objective": (sweep.Objective,),
    "limits": (sweep.SweepLimits,),
    "sampling_algorithm": (
        sweep.RandomSampling,
        sweep.GridSampling,
        sweep.BayesianSampling,
        sweep.AshaSampling,
    ),
    "search_space.*": search_space.DISTRIBUTIONS,
    "early_termination": early_termination.POLICIES,
}
# The same of a pipeline, with its components.
PIPELINE: Kinds = {
    "": (pipeline.PipelineJob,),
    "settings": (pipeline.Settings,),
    "limits": (pipeline.PipelineLimits,),
    "jobs.*": (ComponentNode,),
}
COMPONENT: Kinds = {
    "": (
        component.CommandComponent,
        component.PipelineComponent,
        component.ParallelComponent,
    ),
    "task": (parallel.ParallelTask,),
    "retry_settings": (parallel.RetrySettings,),
    "inputs.*": (component.ComponentInput,),
    "outputs.*": (component.ComponentOutput,),
}
SCHEDULE: Kinds = {
    "": (schedule.Schedule,),
    "trigger": (schedule.CronTrigger, schedule.RecurrenceTrigger, schedule.ManualTrigger),
    "trigger.schedule": (schedule.RecurrencePattern,),
}
ENDPOINT: Kinds = {"": (endpoint.Endpoint,)}
DEPLOYMENT: Kinds = {
    "": (endpoint.Deployment,),
    "model": (endpoint.InlineModel,),
    "resources": (endpoint.DeploymentResources,),
    "code_configuration": (endpoint.CodeConfiguration,),
    "request_settings": (endpoint.RequestSettings,),
    "readiness_probe": (endpoint.Probe,),
    "scale_settings": (endpoint.ScaleSettings,),
}
BATCH_ENDPOINT: Kinds = {"": (batch.BatchEndpoint,), "defaults": (batch.BatchDefaults,)}
BATCH_DEPLOYMENT: Kinds = {
    "": (batch.BatchDeployment, batch.PipelineComponentBatchDeployment),
    "settings": (batch.ModelBatchDeploymentSettings,),
    "retry_settings": (batch.BatchRetrySettings,),
}
ASSETS: Mapping[str, type[BaseModel]] = {
    "Compute": Compute,
    "Data asset": Data,
    "Datastore": Datastore,
    "Environment": job_parts.Environment,
    "Model": Model,
}
_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "any value",
    type(None): "nothing",
    dict: "mapping",
}


def places(kinds: Kinds, top: str) -> Iterator[str]:
    for place, models in kinds.items():
        yield from (f"## {place.replace('*', 'NAME') or top}", "")
        for model in models:
            if len(models) > 1:
                yield from (f"### {kind_of(model)}", "")
            yield from fields(model)


def kind_of(model: type[BaseModel]) -> str:
    """How the file tells one model from the others at its place."""
    default = model.model_fields["type"].default
    return f"type: {default}" if default else "any other type"


def fields(model: type[BaseModel]) -> Iterator[str]:
    yield from ("| Key | Type | Default | Description |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else default_text(field.default)
        shown = type_text(typing.get_type_hints(model, include_extras=True)[name])
        text = sentence(describe(model, name))
        yield f"| `{field.alias or name}` | {cell(shown)} | {default} | {text} |"
    yield ""


def default_text(value: Any) -> str:
    if value in (None, (), PydanticUndefined):  # undefined: made by a factory, and empty
        return ""
    text = ", ".join(value) if isinstance(value, tuple) else value
    return f"`{text if isinstance(text, str) else json.dumps(text)}`"


def describe(model: type[BaseModel], name: str) -> str:
    """The description of a field, of the model or of the nearest base that has one."""
    for each in model.__mro__:
        if found := FIELDS.get(each.__name__, {}).get(name):
            return found
    return ""


def type_text(kind: Any) -> str:
    """A field's type in words. That it may be absent is not part of it."""
    origin = typing.get_origin(kind)
    inner = typing.get_args(kind)
    if origin is typing.Annotated:
        return type_text(inner[0])
    if origin is typing.Literal:
        return " or ".join(f"`{each}`" for each in inner)
    if origin in (typing.Union, types.UnionType):
        words = [type_text(each) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin is tuple:
        return f"list of {type_text(inner[0])}"
    if origin is list:
        return f"list of {type_text(inner[0])}"
    if origin is dict:
        return "mapping" if inner[1] is Any else f"mapping of names to {type_text(inner[1])}"
    if kind is job_keys.Outputs:
        return f"mapping of names to {type_text(job_parts.Output)}"
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return link(kind)
    return _WORDS[kind]


def link(model: type[BaseModel]) -> str:
    """A link to the model's keys: by the place, which has a heading."""
    pages = (
        ("job-file.md", JOB),
        ("sweep-file.md", SWEEP),
        ("pipeline-file.md", PIPELINE),
        ("component-file.md", COMPONENT),
        ("schedule-file.md", SCHEDULE),
        ("endpoint-file.md", DEPLOYMENT),
        ("endpoint-file.md", BATCH_ENDPOINT),
        ("endpoint-file.md", BATCH_DEPLOYMENT),
    )
    page, place = next(
        (page, place) for page, kinds in pages for place, models in kinds.items() if model in models
    )
    heading = place.replace("*", "NAME")
    return f"[`{heading}`]({page}#{anchor(heading)})"


def anchor(heading: str) -> str:
    """The anchor that GitHub and MkDocs both give a heading."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.strip().replace(" ", "-")


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def sentence(text: str) -> str:
    text = cell(text)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
