"""Submit a sweep: check it with its first trial, then record it."""

from __future__ import annotations

from allranks.core.environments.recipe import reference
from allranks.core.plan import Plan
from allranks.errors import Problem, SpecError
from allranks.server.assets.environments import Environments
from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.dependencies import Services
from allranks.server.jobs.view import signed
from allranks.server.parents.sweep.sampler import draw, grid_size
from allranks.server.submission.continuation import set_aside
from allranks.server.submission.submit import Submission, plan, require_code
from allranks.spec.shell.expressions import references
from allranks.spec.sweep.job import SweepJob
from allranks.store.jobs.job_rows import Child, JobRow

# Keys that a sweep has at its top level; all others of a trial are below `trial`.
_SHARED = ("inputs", "outputs", "compute", "tags", "properties", "identity", "queue_settings")


def first_trial(submission: Submission) -> tuple[SweepJob, Submission]:
    """The sweep of a submission, and the submission of its first trial. Raises SpecError."""
    sweep = SweepJob.parse(submission.spec)
    if sweep.name is None:
        raise SpecError(Problem("a job needs a name", "name", hint="the CLI generates one"))
    first = draw(sweep.search_space, sweep.sampling_algorithm, sweep.goal, 0, (), sweep.name)
    spec = sweep.trial_spec(f"{sweep.name}_0", first.parameters)
    return sweep, submission._replace(spec=spec)


def trial_plan(submission: Submission, assets: PlanningAssets) -> tuple[SweepJob, Plan]:
    """A sweep, and the plan of its first trial as ``submit.plan`` makes it. Raises SpecError with
    the sweep's own keys."""
    sweep, first = first_trial(submission)
    try:
        return sweep, plan(first, assets)
    except SpecError as error:
        raise SpecError([_in_sweep(problem) for problem in error.problems]) from None


def create_sweep(
    submission: Submission,
    services: Services,
    by: str,
    environments: Environments | None = None,
    child: Child | None = None,
) -> JobRow:
    """Record a sweep, which then submits its trials. A refused sweep leaves no trace. ``child``: it
    is a step of a pipeline."""
    sweep, first = trial_plan(submission, services.planning(environments))
    spec = signed(submission.spec, by)
    if pinned := reference(first.task.environment):
        # All trials get the same version, also after `@latest` has changed.
        spec["trial"] = {**spec["trial"], "environment": pinned}
    task = first.task._replace(
        job=str(sweep.name),
        record=str(services.home.jobs / str(sweep.name)),
        command=sweep.trial.command,
        nodes=0,
        procs=0,
        chiefs=0,
        parameter_servers=0,
        evaluators=0,
        outputs=(),
        parent="" if child is None else child.parent,
        parameters={},
    )
    made = first._replace(
        gang=first.gang._replace(key=f"{sweep.name}.1", nodes=0, argv=(), env={}), task=task
    )
    services.uploads.require_unchanged(spec)
    with services.admission_lock:
        require_code(submission, services)
        services.uploads.require(spec)
        set_aside(services, task)
        row = services.records.create(spec, made, type="sweep", child=child)
    services.loops.wake(row.name)
    return row


def unused_parameters(sweep: SweepJob) -> list[str]:
    """Notes on parameters that the trials' command does not use."""
    trial = sweep.trial
    text = "\n".join([trial.command, *trial.environment_variables.values()])
    used = {name.removeprefix("search_space.") for name in references(text)}
    used |= {name for name in sweep.search_space if f"AZUREML_SWEEP_{name}" in text}
    return [
        f"the command does not use the parameter {name}: the script can read the variable "
        f"AZUREML_SWEEP_{name}"
        for name in sweep.search_space
        if not any(each == name or each.startswith(f"{name}.") for each in used)
    ]


def total_trials(sweep: SweepJob) -> int:
    """How many trials a sweep runs: a grid ends after its last combination."""
    most = sweep.limits.max_total_trials
    if sweep.sampling_algorithm.type != "grid":
        return most
    return min(most, grid_size(sweep.search_space) or most)


def _in_sweep(problem: Problem) -> Problem:
    where = problem.where or ""
    if not where or where.partition(".")[0] in _SHARED:
        return problem
    return problem._replace(where=f"trial.{where}")
