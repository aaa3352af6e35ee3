"""Notes for whoever submits a sweep or a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.core.job.services import service_notes
from allranks.server.parents.sweep.create import unused_parameters
from allranks.spec.job_type import job_type
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import child_spec, steps_of
from allranks.spec.sweep.job import SweepJob


def parent_notes(spec: Mapping[str, Any]) -> list[str]:
    """How to open the services of the first trial or of the steps, and parameters without effect.
    ``spec`` has components instead of their names."""
    if job_type(spec) == "sweep":
        sweep = SweepJob.parse(spec)
        services = sweep.to_dict().get("services") or {}
        return [*service_notes(f"{sweep.name}_0", services), *unused_parameters(sweep)]
    pipeline = PipelineJob.parse(spec)
    steps = steps_of(pipeline)
    jobs = {name: f"{pipeline.name}_{name}" for name in steps}
    noted: list[str] = []
    for name, step in steps.items():
        if step.type in ("sweep", "pipeline"):
            noted += parent_notes(child_spec(step, jobs[name], pipeline, jobs))
        else:
            noted += service_notes(jobs[name], step.job.get("services") or {})
    return noted
