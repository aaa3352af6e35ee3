"""The keywords of functions that pass them on to the keys of a job or component."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allranks.compat.azure import v2
from allranks.compat.azure.designer import command_component
from allranks.compat.azure.v1 import webservice
from allranks.compat.azure.v1.experiment import Experiment
from allranks.compat.azure.v1.pipeline import Pipeline
from allranks.compat.azure.v1.pipeline_endpoint import PipelineEndpoint
from allranks.sdk.submit.command import Command
from allranks.sdk.submit.nodes import Node
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import Resources
from allranks.spec.pipeline import component
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.sweep.job import SweepJob

_RECORDED = (
    "status status_reason attempts created_at started_at ended_at nodes processes parameters"
)
# The attributes of a job: keys of its record, and of its file.
KEYS_OF_JOBS = frozenset(
    {
        *_RECORDED.split(),
        *CommandJob.model_fields,
        *SweepJob.model_fields,
        *PipelineJob.model_fields,
    }
)
_LIMITS = ("max_total_trials", "max_concurrent_trials", "timeout", "trial_timeout")
_SWEEP = (*SweepJob.model_fields, *_LIMITS, "early_termination_policy")
_RESOURCES = ("instance_count", "instance_type", "is_deterministic", "additional_includes")
_BY_FUNCTION = (
    (Command.sweep, _SWEEP),
    (Node.sweep, _SWEEP),
    (Command.set_resources, Resources.model_fields),
    (Node.set_limits, _LIMITS),
    (v2.Input, (*v2.OF_DATA, *v2.OF_DECLARATIONS)),
    (v2.CommandComponent, (*component.CommandComponent.model_fields, *_RESOURCES)),
    (
        v2.parallel_run_function,
        (*component.ParallelComponent.model_fields, *v2.IDLE, *_RESOURCES),
    ),
    (command_component, component.CommandComponent.model_fields),
    (Experiment.submit, {*Pipeline.submit_keywords, *PipelineEndpoint.submit_keywords}),
    *((kind.deploy_configuration, webservice.KEYWORDS) for kind in webservice.KINDS),
)


def keywords_of(function: Any) -> Iterable[str]:
    """The keywords that a function takes beside those of its signature, as far as listed here."""
    return next((keywords for listed, keywords in _BY_FUNCTION if listed == function), ())
