"""Submit a pipeline: check it with all its steps, then record it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.core.environments.recipe import reference
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import NotFound, Problem, Refused, SpecError
from allranks.server.assets.environments import Environments
from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.dependencies import Services
from allranks.server.jobs.view import signed
from allranks.server.parents.kept_nodes import shared_needs
from allranks.server.parents.sweep.create import trial_plan
from allranks.server.submission.continuation import set_aside
from allranks.server.submission.submit import Submission, plan, require_code
from allranks.spec.pipeline.component import with_components
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import Step, child_spec, steps_of
from allranks.store.jobs.job_rows import Child, JobRow, snapshots
from allranks.store.key_values import read_once


class Checked(dict[str, Step]):
    """The steps of a pipeline by name, and the plans of those that run a command."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        super().__init__(steps)
        self.plans: dict[str, Plan] = {}


def pipeline_plan(submission: Submission, assets: PlanningAssets) -> tuple[PipelineJob, Checked]:
    """A pipeline and its steps, each checked as its job will be. Raises one SpecError with the
    pipeline's keys, and Refused."""
    pipeline = PipelineJob.parse(with_components(submission.spec, assets.components.find))
    if pipeline.name is None:
        raise SpecError(Problem("a job needs a name", "name", hint="the CLI generates one"))
    steps = Checked(steps_of(pipeline))
    names = {each: f"{pipeline.name}_{each}" for each in steps}

    def find_or_planned(name: str) -> JobRow | None:
        return None if assets.find is None or name in names.values() else assets.find(name)

    of_steps = assets._replace(find=find_or_planned)

    def check(step: Step) -> None:
        child = step_submission(submission, step, pipeline, names[step.name], names)
        if step.type == "sweep":
            trial_plan(child, of_steps)
        elif step.type == "pipeline":
            pipeline_plan(child, of_steps)
        else:
            steps.plans[step.name] = plan(child, of_steps)

    problems: list[Problem] = []
    with read_once():
        for step in steps.values():
            try:
                check(step)
            except SpecError as error:
                problems += [problem.below(f"jobs.{step.name}") for problem in error.problems]
            except (NotFound, Refused) as error:
                problem = Problem(error.message, error.where, hint=error.hint)
                problems.append(problem.below(f"jobs.{step.name}"))
    if problems:
        raise SpecError(problems)
    return pipeline, steps


def step_submission(
    submission: Submission,
    step: Step,
    pipeline: PipelineJob,
    name: str,
    jobs: Mapping[str, str],
) -> Submission:
    """The submission of a step's job ``name``; ``jobs`` are those of the other steps."""
    spec = child_spec(step, name, pipeline, jobs)
    return submission._replace(spec=spec, code=step.job.get("snapshot"), in_place=None, diff="")


def create_pipeline(
    submission: Submission,
    services: Services,
    by: str,
    environments: Environments | None = None,
    child: Child | None = None,
) -> JobRow:
    """Record a pipeline, which then submits its steps. A refused one leaves no trace. ``child``: it
    is a step of another one."""
    pipeline, steps = pipeline_plan(submission, services.planning(environments))
    resolved = with_components(submission.spec, services.components.find)
    spec = signed(_pinned(resolved, steps.plans), by)
    made = _plan(submission, pipeline, services, child)
    needs = shared_needs(steps.plans, services) if pipeline.reuse_nodes else {}
    services.uploads.require_unchanged(spec)
    with services.admission_lock:
        for digest in {*snapshots(spec)}:
            require_code(submission._replace(code=digest), services)
        services.uploads.require(spec)
        set_aside(services, made.task)
        row = services.records.create(
            spec, made, type="pipeline", child=child, notes={"needs": needs} if needs else {}
        )
    services.loops.wake(row.name)
    return row


def _plan(
    submission: Submission, pipeline: PipelineJob, services: Services, child: Child | None
) -> Plan:
    """The plan of the pipeline itself, which has no ranks."""
    compute = services.clusters.find(pipeline.settings.default_compute or pipeline.compute)
    name = str(pipeline.name)
    task = Task(
        name,
        pipeline.experiment_name or "Default",
        "",
        nodes=0,
        procs=0,
        base=submission.base,
        tools=submission.tools,
        current=submission.python,
        record=str(services.home.jobs / name),
        parent="" if child is None else child.parent,
    )
    gang = Gang(f"{name}.1", 0, ())
    address = compute.server_address or ""
    return Plan(gang, task, Rules(0), compute.type, "", compute.name, address)


def _pinned(spec: Mapping[str, Any], plans: Mapping[str, Plan]) -> dict[str, Any]:
    """The spec with the versions of named environments: `@latest` may change."""
    jobs = spec.get("jobs")
    if not isinstance(jobs, Mapping):
        return dict(spec)
    made = {
        name: {**node, "environment": pinned}
        if name in plans and (pinned := reference(plans[name].task.environment))
        else node
        for name, node in jobs.items()
    }
    return {**spec, "jobs": made}
