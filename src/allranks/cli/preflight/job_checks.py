"""`allranks doctor --job FILE`: find what would keep a job from running on its compute.

First local checks (the file, its script, its inputs), then a probe job on the compute. Everything
within the time limit; what did not answer is named.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import settings
from allranks.agent.environments.virtual_environments import EnvironmentCache
from allranks.cli.preflight import job_command, job_script, verdicts
from allranks.cli.preflight.findings import BAD, NOTE, OK, Finding
from allranks.cli.preflight.probe_gang import MEET, TOTAL, rehearse, spec_of, within
from allranks.cli.preflight.probe_questions import Question
from allranks.cli.submit.overrides import engines
from allranks.core.amounts import counted
from allranks.core.distributions import mpi
from allranks.core.environments.container import ENGINES
from allranks.core.environments.recipe import CURRENT, Compute, resolve
from allranks.core.job.compile import CompileContext, compile
from allranks.core.job.gpu_allocation import Choice
from allranks.core.plan import Recipe, Task
from allranks.errors import AllranksError, Problem, SpecError
from allranks.sdk.connection import find_server
from allranks.sdk.submit.current_environment import current, tools
from allranks.sdk.submit.paths import environment_of, has_files, local
from allranks.sdk.submit.prepare import prepare
from allranks.server.assets.data_locations import places
from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.assets.read_only_home import read_only_home
from allranks.server.clusters.clusters import Clusters
from allranks.server.clusters.default_gpus import choice
from allranks.spec.fields.problems import placed
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import Input, MpiDistribution, RayDistribution
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document

# The share of the time limit for scanning the code.
_COPYING = 0.2


def preflight(
    file: Path,
    overrides: list[str],
    seconds: float,
    until: float,
    say: Callable[[str], None] = lambda text: None,
) -> list[Finding]:
    """All findings until the monotonic time ``until``, within ``seconds``. Raises NotFound if the
    file does not exist."""
    say("reading the job")
    try:
        job = _command_job(file, overrides)
    except SpecError as error:
        return [_of_problem(problem, str(file)) for problem in error.problems]
    findings = [Finding("job file", OK, str(file))]
    if server := find_server.of_another_home():
        text = f"planned with the computes and assets of this machine, not of {server}"
        findings.append(Finding("server", NOTE, text))
    data = job.to_dict()
    folder = file.absolute().parent
    try:
        if has_files(data.get("environment")):
            data["environment"] = environment_of(data["environment"], folder)
        with read_only_home(settings.home()) as assets:
            task = _plan(data, folder, file, assets)
    except SpecError as error:
        return findings + [_of_problem(p, error.file or str(file)) for p in error.problems]
    except AllranksError as error:
        return [*findings, Finding("job file", BAD, str(error), error.hint or "")]
    recipe = task.recipe
    waits = recipe is not None and (task.container is not None or not _is_made(recipe))
    if recipe is not None:
        findings.append(_environment(task, recipe, waits))
    code = local(data.get("code"), folder)
    base = current() | _plain(data.get("environment_variables") or {})
    copied = within(_COPYING * seconds, lambda: _taken(data, folder)) if code is not None else None
    findings += _code(code, copied, _COPYING * seconds)
    findings += job_command.look(job.command, base, job.environment in CURRENT)
    taken = None if isinstance(copied, AllranksError) else copied
    read = job_script.look(job.command, code, taken, base, job.environment in CURRENT)
    findings += read.findings
    question = _question(job, folder, read)._replace(gpus=task.gpus)
    # The probe job runs one process per node with the job's resources.
    data["resources"] = {**(data.get("resources") or {}), "gpus_per_instance": task.gpus}
    if waits:
        # Nothing can be missing from an environment that is not built yet.
        data.pop("environment")
        question = question._replace(modules={}, programs=())
    findings += _inputs(question.paths)
    if any(finding.what == "job file" and finding.state == BAD for finding in findings):
        return findings  # a job that cannot be submitted is not probed
    say(f"trying {counted(question.nodes, 'node')}")
    inputs = _absolute(data.get("inputs") or {}, folder)
    on_disk = {name: value for name, value in inputs.items() if f"inputs.{name}" in question.paths}
    request = {
        "meet": MEET * seconds,
        "total": min(TOTAL * seconds, until - time.monotonic() - 1.5),
        "modules": sorted(question.modules),
        "paths": question.paths,
        "programs": question.programs,
        "sys_class": os.environ.get("ALLRANKS_SYS_CLASS"),
    }
    answers = rehearse(spec_of(data, read.python, on_disk, seconds), request, until, say)
    return findings + list(verdicts.of_gang(question, answers))


def _plan(data: Mapping[str, Any], folder: Path, file: Path, assets: PlanningAssets) -> Task:
    """The plan of the job. Raises SpecError for what this version cannot run."""
    _, lines = load.read(load.content(file), file=str(file))
    try:
        lies = {key: _absolute(data.get(key) or {}, folder) for key in ("inputs", "outputs")}
        job = CommandJob.parse({**data, **lies})
        table, environment = assets.environments.table(), job.environment
        compute = str(data.get("compute") or "")
        there = places(job, assets.datastores, assets.home)
        engine = _container(job, assets.clusters)
        on = Compute(compute, engine is not None)
        context = CompileContext(
            "preflight",
            "/",
            (),
            compute,
            places=there,
            options={"container": engine},
            meant=resolve(environment, on, table, assets.environments.find),
            table=table,
            gpus=_gpus(job, assets.clusters),
        )
        return compile(job, context).task
    except SpecError as error:
        raise SpecError([placed(problem, lines) for problem in error.problems]) from None


def _command_job(file: Path, overrides: list[str]) -> CommandJob:
    """The job of the file. Raises SpecError, also for other types of jobs."""
    job = load.load(file, overrides, engines=engines(overrides))
    if isinstance(job, CommandJob):
        return job
    hint = "`allranks job validate -f FILE` checks it; doctor checks the command of one of its jobs"
    raise SpecError(Problem(f"doctor checks command jobs, not a {job.type}", "type", hint=hint))


def _container(job: CommandJob, clusters: Clusters) -> str | None:
    """The container engine of the job's compute. The probe job checks the rest."""
    try:
        options = clusters.options(clusters.find(job.compute), job)
    except SpecError:
        return ENGINES[0]
    engine = options.get("container")
    return None if engine is None else str(engine)


def _gpus(job: CommandJob, clusters: Clusters) -> Choice | None:
    """The GPUs that the job gets; None if the compute is invalid."""
    try:
        compute = clusters.find(job.compute)
        return choice(job, compute, clusters.options(compute, job), clusters)
    except SpecError:
        return None


def _is_made(recipe: Recipe) -> bool:
    shelf = EnvironmentCache(settings.home().environments, "", {**current(), **tools()})
    return shelf.find(recipe) is not None


def _environment(task: Task, recipe: Recipe, waits: bool) -> Finding:
    name = task.environment or f"an environment of {len(recipe.requirements)} requirements"
    if not waits:
        return Finding("environment", OK, f"{name} is already built")
    if task.container is not None:
        image = task.container.image or task.container.context
        text = f"the first job installs the packages on top of the image {image}"
        return Finding("environment", NOTE, f"{text}; missing modules are unknown until then")
    hint = "build it now: allranks environment build NAME, or -f FILE"
    text = (
        f"{name} is not built yet (the first job builds it); missing modules are unknown until then"
    )
    return Finding("environment", NOTE, text, hint)


def _absolute(values: Mapping[str, Any], folder: Path) -> Document:
    """Inputs or outputs with absolute paths, as in a submission."""
    return {
        name: {**value, "path": str(path)}
        if isinstance(value, Mapping) and (path := local(value.get("path"), folder))
        else value
        for name, value in values.items()
    }


def _of_problem(problem: Problem, file: str) -> Finding:
    return Finding("job file", BAD, problem.located(file), problem.hint or "")


def _taken(data: Mapping[str, Any], folder: Path) -> Collection[str] | AllranksError:
    """The files of the snapshot, or why there is none."""
    try:
        _, snapshots = prepare({"code": data["code"]}, folder, allow_large=True)
    except AllranksError as error:
        return error
    if not snapshots:
        return ()
    return frozenset(snapshots[0].files)


def _code(
    code: Path | None, taken: Collection[str] | AllranksError | None, seconds: float
) -> Iterator[Finding]:
    if code is None:
        return
    if not code.exists():
        yield Finding("code", BAD, f"{code} not found", "`code` is relative to the job file")
    elif isinstance(taken, AllranksError):
        yield Finding("code", BAD, str(taken), taken.hint or "")
    elif taken is None:
        hint = "it is sent with every job: exclude data with lines in .amlignore"
        text = f"{code} cannot be copied within {seconds:g} s"
        yield Finding("code", NOTE, text, hint)
    elif not taken:
        yield Finding("code", NOTE, f"{code} is empty", "check the folder")
    else:
        yield Finding("code", OK, f"{code}: {counted(len(taken), 'file')}")


def _inputs(paths: Mapping[str, str]) -> Iterator[Finding]:
    for name, path in paths.items():
        if not name.startswith("inputs."):
            continue
        if not os.path.exists(path):
            hint = "relative paths start at the job file's folder"
            yield Finding("inputs", BAD, f"{name}: {path} not found", hint)
        elif not os.access(path, os.R_OK):
            yield Finding("inputs", BAD, f"{name}: {path} cannot be read", f"chmod +r {path}")


def _question(job: CommandJob, folder: Path, read: job_script.Read) -> Question:
    distribution = job.distribution
    kind = "none" if distribution is None else str(distribution.type)
    programs: tuple[str, ...] = ()
    if isinstance(distribution, MpiDistribution):
        implementation = distribution.implementation or ""
        programs = (implementation,) if "/" in implementation else mpi.PROGRAMS
    elif isinstance(distribution, RayDistribution):
        programs = (kind,)
    paths = {}
    for name, value in job.inputs.items():
        path = local(value.path, folder) if isinstance(value, Input) else None
        if path is not None:
            paths[f"inputs.{name}"] = str(path)
    return Question(
        job.resources.instance_count,
        getattr(distribution, "process_count_per_instance", 1),
        job.resources.gpus_per_instance or 0,
        kind,
        read.modules,
        paths,
        programs,
        read.python,
        job.environment_variables,
        job.environment in CURRENT,
    )


def _plain(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if "${{" not in value}
