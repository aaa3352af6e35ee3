"""A job of any type, by its ``type`` or its ``$schema``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import nearest, placed
from allranks.spec.job import CommandJob
from allranks.spec.job_type import job_type
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.sweep.job import SweepJob

AnyJob = CommandJob | SweepJob | PipelineJob
TYPES: Mapping[str, type[AnyJob]] = {
    "command": CommandJob,
    "sweep": SweepJob,
    "pipeline": PipelineJob,
}


def parse_any(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> AnyJob:
    """The job in ``data``: see ``parse`` of the models."""
    if "component" in str(data.get("$schema") or "").lower():
        hint = "name it in a step of a pipeline, or: allranks component create -f FILE"
        problem = Problem("this is a component, not a job", where="$schema", hint=hint)
        raise SpecError(placed(problem, lines or {}), file=file)
    kind = job_type(data)
    if (model := TYPES.get(kind)) is not None:
        return model.parse(data, lines, file)
    where = "$schema" if data.get("type") is None else "type"
    hint = nearest(kind, TYPES) or "the types are `command`, `sweep` and `pipeline`"
    problem = Problem(f"`{kind}` is not a type of job", where=where, hint=hint)
    raise SpecError(placed(problem, lines or {}), file=file)
