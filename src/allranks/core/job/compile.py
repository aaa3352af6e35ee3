"""Spec to plan: pure. What this version cannot run is refused here, by key."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.core import amounts
from allranks.core.data.addresses import Located
from allranks.core.data.kept_files import LIMIT
from allranks.core.distributions.fixed_ports import fixed_ports
from allranks.core.distributions.topology import world
from allranks.core.environments.activation import installs_packages
from allranks.core.environments.recipe import (
    Compute,
    Resolved,
    is_image,
    recipe,
    recipe_of_current,
    resolve,
)
from allranks.core.job.gpu_allocation import Choice, Request, choose
from allranks.core.job.images import container_of, memory_of, node_image
from allranks.core.job.services import service_tasks
from allranks.core.packing import pack
from allranks.core.plan import (
    CurrentPython,
    Gang,
    InputTask,
    MetricTask,
    OutputTask,
    Plan,
    Rules,
    Task,
)
from allranks.errors import Problem, SpecError
from allranks.settings import SHELL_LIMITS
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import Distribution, Input, Metric, Output
from allranks.statuses import SharedHome

# In the submitter's environment, if that is a rank of a job.
SUBMITTER = "ALLRANKS_JOB"
BUILT = ("none", "pytorch", "tensorflow", "mpi", "deepspeed", "horovod", "jax", "ray")

# Bytes of what a replica prints that are kept: it has no end.
LOG_LIMIT = 20_000_000


class CompileContext(NamedTuple):
    """What compiling needs beside the spec. ``record`` is the job's folder, ``code`` the digest of
    its snapshot (None with ``in_place``), ``base`` the clean environment ranks start from;
    ``places`` says where each input and output lies that has a path, by `inputs.NAME` and
    `outputs.NAME`;
    ``options`` are the engine's, the compute's and the job's own in one; ``meant`` is what the
    job's environment means there, ``table`` what is taken in the place of other things;
    ``environments`` is where they lie, ``uv`` what makes them, with the variables ``tools``;
    ``cache`` is the nodes' folder for data from elsewhere, where the options name none;
    ``tier`` is the compute's for jobs that name none; ``gpus`` is how many each node gets, None: as
    many as the job asks for; ``continues`` is the job that is run again, ``previous`` why that one
    ended; ``look``: how often its state is looked at, see ``Rules``; ``images``: the engine runs
    every node in an image; ``shared_home``: whether nodes share the disk of the server's home;
    ``python`` is the submitter's, for nodes that may lack it; ``serves``: it waits for requests, so
    its rank takes no turn of the machine's; ``remote``: its nodes are other machines, which the
    limits of the submitter's shell do not concern."""

    name: str
    record: str
    argv: tuple[str, ...]
    engine: str
    base: Mapping[str, str] = {}
    code: str | None = None
    in_place: str | None = None
    experiment: str = "Default"
    places: Mapping[str, Located] = {}
    compute: str = ""
    options: Mapping[str, Any] = {}
    server_address: str = ""
    meant: Resolved | None = None
    table: Mapping[str, str] = {}
    environments: str = ""
    uv: str = ""
    tools: Mapping[str, str] = {}
    cache: str = ""
    tier: str = ""
    gpus: Choice | None = None
    continues: str = ""
    previous: str = ""
    look: float | None = None
    images: bool = False
    shared_home: SharedHome = SharedHome.YES
    python: CurrentPython | None = None
    serves: bool = False
    remote: bool = True


def compile(spec: CommandJob, context: CompileContext) -> Plan:
    """The plan of a job. The same spec and context always give the same plan and digest.

    Raises SpecError for what this version cannot do yet, and for words too long for Linux.
    """
    _refuse_unbuilt(spec)
    _refuse_too_long(spec)
    resources = spec.resources
    nodes = resources.instance_count
    options = dict(context.options)
    engine = options.pop("container", None)
    on = Compute(context.compute, engine is not None or context.images)
    of = context.meant or resolve(spec.environment, on, context.table, _nameless)
    around = {**_around(spec, engine, context, of), **_cache(options, context)}
    options |= node_image(spec, of.environment) if context.images else {}
    # A recipe has these sentences among its own.
    notes = () if "recipe" in around else of.notes
    if not around.keys() & {"recipe", "container"} and installs_packages(spec.command):
        notes = (*notes, _LAYERED)
    gpus = context.gpus or choose(Request(resources.gpus_per_instance))
    limits = "" if context.remote else context.base.get(SHELL_LIMITS, "")
    gang = Gang(
        key=f"{context.name}.1",
        nodes=nodes,
        argv=context.argv,
        env={SHELL_LIMITS: limits} if limits else {},
        gpus=gpus.per_node,
        cpus=_number(options.pop("cpus", None), f"resources.properties.{context.engine}.cpus"),
        memory=memory_of(
            options.pop("memory", None), f"resources.properties.{context.engine}.memory"
        ),
        options=options,
        grace=spec.limits.grace,
        spot=str(spec.queue_settings.job_tier or context.tier) == "spot",
    )
    task = _task(spec, context, around)._replace(gpus=gpus.per_node)
    _refuse_ranks_there_are_not(task)
    besides = task.chiefs + task.parameter_servers + task.evaluators
    most = 1 if task.distribution == "ray" else task.procs + math.ceil(besides / nodes)
    # What a rank submits and waits for must not wait for that rank.
    waits = context.serves or spec.session is not None
    ranks = 0 if waits or SUBMITTER in context.base else world(task) - task.parameter_servers
    ports = fixed_ports(spec.command, spec.environment_variables)
    # Replicas of one deployment are not to end with one machine.
    owner = [spec.properties.get(f"allranks.{of}", "") for of in ("endpoint", "deployment")]
    apart = "/".join(owner) if context.serves else ""
    gang = gang._replace(processes=most, ranks=ranks, fixed_ports=ports, apart=apart)
    retry = spec.retry
    rules = Rules(
        nodes,
        retry.max_attempts,
        tuple(str(on) for on in retry.on),
        spec.limits.timeout,
        retry.budgets.model_dump(exclude_none=True),
        spec.limits.grace,
        context.look,
        retry.no_progress,
    )
    plan = Plan(
        gang,
        task,
        rules,
        context.engine,
        compute=context.compute,
        server_address=context.server_address,
        notes=tuple(filter(None, (*notes, gpus.reason, gpus.note))),
    )
    text = json.dumps(pack(plan), sort_keys=True)
    return plan._replace(digest=hashlib.sha256(text.encode()).hexdigest())


def _task(spec: CommandJob, context: CompileContext, around: Mapping[str, Any]) -> Task:
    """What every node of it does."""
    distribution = spec.distribution
    task = Task(
        job=context.name,
        experiment=spec.experiment_name or context.experiment,
        command=spec.command,
        nodes=spec.resources.instance_count,
        procs=getattr(distribution, "process_count_per_instance", 1) or 1,
        distribution="none" if distribution is None else str(distribution.type),
        chiefs=getattr(distribution, "chief_count", 0),
        parameter_servers=getattr(distribution, "parameter_server_count", 0),
        evaluators=getattr(distribution, "evaluator_count", 0),
        options=_options(distribution),
        base=_base(context.base, context.images or "container" in around),
        variables=dict(spec.environment_variables),
        code=context.code,
        in_place=context.in_place,
        inputs=tuple(_input(name, value, context) for name, value in spec.inputs.items()),
        outputs=tuple(_output(name, value, context) for name, value in spec.outputs.items()),
        record=context.record,
        timeout=spec.limits.timeout,
        hang_timeout=spec.hang_timeout,
        flight_recorder=spec.flight_recorder,
        on_failure=None if spec.on_failure is None else spec.on_failure.hold,
        metrics=tuple(_metric(name, value) for name, value in spec.metrics.items()),
        state=spec.state or "",
        keep_work=_keep_work(spec.keep_work),
        log_limit=LOG_LIMIT if context.serves else None,
        warm=tuple(spec.warm),
        parent=spec.parent_job_name or "",
        parameters={name: parameter_text(value) for name, value in spec.search_space.items()},
        continues=context.continues,
        previous=context.previous,
        sends_files=context.shared_home is SharedHome.NO,
        may_send=context.shared_home is SharedHome.AUTO,
        fresh_work=spec.retry.fresh_work,
        services=service_tasks(spec.services),
        **around,
    )
    return task._replace(**_makers(context)) if task.moves_data else task


def _refuse_ranks_there_are_not(task: Task) -> None:
    many = world(task)
    for metric in task.metrics:
        if metric.rank is not None and metric.rank >= many:
            message = f"the job has no rank {metric.rank}"
            hint = f"the ranks of this job are 0 to {many - 1}; `all` means every one"
            raise SpecError(Problem(message, f"metrics.{metric.name}.rank", hint=hint))


def _metric(name: str, metric: Metric | str) -> MetricTask:
    if isinstance(metric, str):
        return MetricTask(name, metric)
    return MetricTask(name, metric.pattern, None if metric.rank == "all" else int(metric.rank))


def _cache(options: dict[str, Any], context: CompileContext) -> dict[str, Any]:
    """Where data from elsewhere is kept, taken out of the options."""
    folder = options.get("cache")
    if context.shared_home is SharedHome.YES:
        options.pop("cache", None)  # else the engine puts agents there as well
    limit = options.pop("cache_limit", None)
    folder = folder or ("" if context.shared_home is SharedHome.NO else context.cache)
    return {"cache": folder, "cache_limit": memory_of(limit, "cache_limit")}


def _makers(context: CompileContext) -> dict[str, Any]:
    """What nodes make environments with: those of jobs, and one of ours that moves data."""
    folder = "" if context.shared_home is SharedHome.NO else context.environments
    return {"environments": folder, "uv": context.uv, "tools": context.tools}


def _refuse_unbuilt(spec: CommandJob) -> None:
    problems = []
    kind = None if spec.distribution is None else str(spec.distribution.type)
    if kind is not None and kind not in BUILT:
        problems.append(_unbuilt("distribution.type", f"the distribution {kind!r}"))
    for key in ("address", "include_dashboard", "dashboard_port"):
        if getattr(spec.distribution, key, None):
            problems.append(_unbuilt(f"distribution.{key}", f"`{key}` of a Ray cluster"))
    if spec.hang_timeout and kind == "ray":
        # Its own processes are never idle, and what its ranks' tasks do is not seen.
        problems.append(_unbuilt("hang_timeout", "`hang_timeout` of a Ray job"))
    if problems:
        raise SpecError(problems)


# Linux takes no word of 128 KiB or more; a command is one word of a shell. The rest is for what
# stands around it there, such as the names of inputs.
_LONGEST = (128 << 10) - 1_000


def _refuse_too_long(spec: CommandJob) -> None:
    hint = "write it to a script in the code folder, and run that"
    texts = [("command", "the command", spec.command, hint)]
    hint = "write it to a file in the code folder, and pass that file's name"
    for name, value in spec.environment_variables.items():
        where = f"environment_variables.{name}"
        texts.append((where, f"the variable {name}", f"{name}={value}", hint))
    for name, literal in spec.inputs.items():
        if not isinstance(literal, Input):
            text = f"AZUREML_PARAMETER_{name}={literal}"
            texts.append((f"inputs.{name}", f"the input {name}", text, hint))
    problems = [
        Problem(f"{what} has {size:,} bytes, and Linux takes {_LONGEST:,}", where, hint=hint)
        for where, what, text, hint in texts
        if (size := len(text.encode(errors="replace"))) > _LONGEST
    ]
    if problems:
        raise SpecError(problems)


# What is the network's and no program's: an image has no words of its own for it.
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


def _around(
    spec: CommandJob, engine: str | None, context: CompileContext, of: Resolved
) -> dict[str, Any]:
    """What ranks find around them: a container, an environment made for them, or nothing new."""
    # Refused also where nothing uses it.
    memory_of(spec.resources.shm_size, "resources.shm_size")
    fields: dict[str, Any] = {"environment": of.name, "environment_asked": of.asked}
    if of.environment is None:
        # Without a word, ranks run in the image that the engine runs.
        if context.python is None or (context.images and spec.environment is None):
            return fields
        made = recipe_of_current(context.python, context.table)
        return {**fields, "current": context.python, "recipe": made, **_makers(context)}
    has_image = of.environment.image is not None or of.environment.build is not None
    if engine is not None and has_image:
        fields["container"] = container_of(spec, of.environment, engine)
    if (engine is not None or context.images) and is_image(of.environment):
        return fields
    made = recipe(of, context.table)
    return {**fields, "recipe": made, **_makers(context)}


_LAYERED = (
    "what the command installs with pip goes into a layer of this job; the current Python stays "
    "as it is"
)


def _nameless(asset: Asset) -> Resolved:
    hint = "write it out: `environment: {pip: […]}`"
    raise SpecError(Problem(f"environment {asset} not found", "environment", hint=hint))


def _base(base: Mapping[str, str], in_image: bool) -> dict[str, str]:
    """An image has an environment of its own, and programs at other paths."""
    if not in_image:
        return {name: value for name, value in base.items() if name != SHELL_LIMITS}
    kept = (*_PROXIES, SUBMITTER.lower())
    return {name: value for name, value in base.items() if name.lower() in kept}


def _options(distribution: Distribution | None) -> dict[str, Any]:
    """What a distribution's own start needs beside its counts."""
    names = (
        "implementation",
        "port",
        "head_node_additional_args",
        "worker_node_additional_args",
    )
    options = {name: getattr(distribution, name, None) for name in names}
    return {name: value for name, value in options.items() if value is not None}


def _unbuilt(where: str, what: str) -> Problem:
    return Problem(f"{what} is not supported in this version", where, hint="leave it out for now")


# How a table is read is its reader's business: its files are all a job is given.
_FILES_OF_TABLES = {"eval_mount": "ro_mount", "eval_download": "download"}


def _input(name: str, value: Any, context: CompileContext) -> InputTask:
    if not isinstance(value, Input):
        return InputTask(name, text=str(value))
    place = context.places.get(f"inputs.{name}") or Located(value.path)
    mode = _FILES_OF_TABLES.get(str(value.mode), str(value.mode))
    return InputTask(
        name,
        source=place.path or None,
        mode=mode,
        uri=place.uri,
        datastore=place.datastore,
        unpack=value.unpack,
        sharded=value.sharded,
        asset=place.asset,
        digest=place.digest,
    )


def _output(name: str, value: Output | None, context: CompileContext) -> OutputTask:
    is_file = value is not None and str(value.type) == "uri_file"
    if value is not None and value.path:
        place = context.places.get(f"outputs.{name}") or Located(value.path)
        direct = str(value.mode) == "direct" and bool(place.uri)
        path = place.uri if direct else place.path
        return OutputTask(name, path, is_file, place.uri, place.datastore, str(value.mode))
    folder = f"{context.record}/named-outputs/{name}"
    return OutputTask(name, f"{folder}/{name}" if is_file else folder, is_file)


def _number(value: Any, where: str) -> float | None:
    try:
        return None if value is None else amounts.number(value)
    except (TypeError, ValueError):
        hint = "e.g. 2 or 0.5"
        raise SpecError(Problem(f"{value!r} is not a positive number", where, hint=hint)) from None


def _keep_work(value: str | None) -> int | None:
    """Bytes of the working folder that are kept; None: all of it."""
    if value is None:
        return LIMIT
    if (word := value.strip().lower()) in ("all", "none"):
        return None if word == "all" else 0
    try:
        return amounts.memory(value)
    except ValueError:
        hint = "a size with its unit (20g, 500m), `all`, or `none`"
        raise SpecError(Problem(f"{value!r} is not a size", "keep_work", hint=hint)) from None


def parameter_text(value: Any) -> str:
    """A value of a search space as a trial's command gets it: mappings and lists as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
