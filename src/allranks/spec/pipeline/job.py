"""The pipeline job: Azure ML v2's pipelineJob."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from allranks.errors import Problem
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import Models, nearest
from allranks.spec.fields.scalars import Seconds, Text, sendable
from allranks.spec.job import MODELS
from allranks.spec.job_keys import JobKeys
from allranks.spec.job_parts import snake


class Settings(Part):
    """Azure ML's settings of a pipeline; others are kept."""

    model_config = ConfigDict(extra="allow")
    default_compute: Text | None = None
    default_datastore: Text | None = None
    continue_on_step_failure: bool = True
    force_rerun: bool = False


class PipelineLimits(Part):
    """``timeout`` is for the whole pipeline, in seconds."""

    timeout: Seconds | None = None


class PipelineJob(JobKeys):
    """Steps that run one after the other or side by side, as their inputs are there. Made by
    ``PipelineJob.parse``. The steps are in ``jobs``, or in a pipeline ``component``."""

    type: Annotated[Literal["pipeline"], BeforeValidator(snake)] = "pipeline"
    settings: Settings = Field(default_factory=Settings)
    limits: PipelineLimits = Field(default_factory=PipelineLimits)
    jobs: Annotated[dict[str, dict[str, Any]], BeforeValidator(sendable)] = Field(
        default_factory=dict
    )
    component: Annotated[dict[str, Any] | Text | None, BeforeValidator(sendable)] = None
    reuse_nodes: bool = True

    @classmethod
    def _models(cls) -> Models:
        return _MODELS

    def _across(self) -> list[Problem]:
        if (self.component is None) == (not self.jobs):
            where = "jobs" if self.component is None else "component"
            hint = "add steps under `jobs`" if self.component is None else "remove one of the two"
            message = (
                "a pipeline needs steps" if self.component is None else "`jobs` are there as well"
            )
            return [Problem(message, where, hint=hint)]
        return name_problems(self.jobs)

    def to_dict(self) -> dict[str, Any]:
        """JSON data without default values; ``parse`` restores the pipeline from it."""
        return {"type": "pipeline", **super().to_dict()}


# The property of a pipeline that says what packages the current Python has.
PACKAGES = "allranks.packages"
NODE_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_MODELS: Models = {
    "": (PipelineJob,),
    "settings": (Settings,),
    "limits": (PipelineLimits,),
    **{key: MODELS[key] for key in ("inputs.*", "outputs.*", "queue_settings", "identity")},
}


def name_problems(jobs: Mapping[str, Any]) -> list[Problem]:
    """The names of steps that are not valid."""
    hint = "use lower-case letters, digits and `_`, and start with a letter or `_`"
    return [
        Problem(f"`{name}` is not the name of a step", f"jobs.{name}", hint=hint)
        for name in jobs
        if not NODE_NAME.fullmatch(name)
    ]


def unknown_type(kind: str, where: str) -> Problem:
    """The problem of a step of a type that does not run here."""
    if kind in _AZURE_ONLY:
        message, hint = f"`{kind}` steps are not supported in this version", "use a command step"
    else:
        message = f"`{kind}` is not a type of step"
        hint = nearest(kind, TYPES) or "the types are " + ", ".join(f"`{e}`" for e in TYPES)
    return Problem(message, where, hint=hint)


TYPES = ("command", "parallel", "sweep", "pipeline")
_AZURE_ONLY = (
    "automl",
    "spark",
    "import",
    "data_transfer",
    "if_else",
    "do_while",
    "parallel_for",
)
