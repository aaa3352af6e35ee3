"""A job comes in: checked against the one model, compiled, admitted by its engine, recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from allranks.engines.base import Kind
from allranks.errors import MissingCode, Problem, SpecError
from allranks.plan.environments import recipe
from allranks.plan.job.compile import CompileContext, compile
from allranks.plan.job.continuation import Carried
from allranks.plan.plan import Plan
from allranks.server.assets.data_locations import places, referred
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import Environments
from allranks.server.clusters.clusters import Clusters
from allranks.server.clusters.default_gpus import choice
from allranks.server.dependencies import Services
from allranks.server.jobs.output_assets import refuse_taken
from allranks.server.jobs.view import signed
from allranks.server.submission.continuation import Continuation
from allranks.settings import Home
from allranks.spec.compute import Compute
from allranks.spec.job import CommandJob, parse
from allranks.spec.model import TYPES
from allranks.store.job_rows import JobRow

# -P: the folder an agent works in is the user's, and no place to import from.
AGENT = (sys.executable, "-P", "-m", "allranks.agent")


# Seconds between two looks at a state that a submission may ask for.
_LEAST_PACE, _MOST_PACE = 0.05, 60.0
NO_SUBMISSION = Problem(
    "a submission is {spec, code, in_place, base, tools, diff}",
    hint="the command line and the SDK of this version make one",
)


class Submission(NamedTuple):
    """What a door sends: the spec with absolute paths, the code's digest or folder, the
    environment the submitter had in front, the variables of their pip and uv, and what of the code
    is in no commit. ``continues`` is the ended job whose files it starts from, ``previous`` why
    that one ended. ``look``: seconds between two looks at its state, for a rehearsal.
    ``environment_asked`` is what the environment of that job stood for."""

    spec: Mapping[str, Any]
    code: str | None = None
    in_place: str | None = None
    base: Mapping[str, str] = {}
    tools: Mapping[str, str] = {}
    diff: str = ""
    continues: str = ""
    previous: str = ""
    look: float | None = None
    environment_asked: str = ""

    @staticmethod
    def load(data: Any) -> Submission:
        if not isinstance(data, dict) or not isinstance(data.get("spec"), dict):
            raise SpecError(NO_SUBMISSION)
        known = {name: data[name] for name in Submission._fields if name in data}
        made = Submission(**known)
        texts = (made.code or "", made.in_place or "", made.diff, made.continues, made.previous)
        plain = all(isinstance(each, str) for each in (*texts, made.environment_asked))
        if made.look is not None and not _is_pace(made.look):
            raise SpecError(NO_SUBMISSION)
        if not plain or not all(map(_is_words, (made.base, made.tools))):
            raise SpecError(NO_SUBMISSION)
        return made


def _is_pace(data: Any) -> bool:
    return type(data) in (int, float) and _LEAST_PACE <= data <= _MOST_PACE


def _is_words(data: Any) -> bool:
    """Whether it is a mapping of texts to texts."""
    words = (*data.keys(), *data.values()) if isinstance(data, Mapping) else (None,)
    return all(isinstance(each, str) for each in words)


def plan(
    submission: Submission,
    home: Home,
    clusters: Clusters,
    environments: Environments,
    datastores: Datastores,
    find: Callable[[str], JobRow] | None = None,
) -> Plan:
    """The plan of a submission. Pure but for the engine's count of what it has, and for ``find``,
    which knows other jobs; without it (nobody asks the server) their outputs are taken on trust.

    Raises SpecError for what cannot be run, Refused for what never fits.
    """
    spec = parse(submission.spec)
    if spec.name is None:
        raise SpecError(Problem("a job needs a name", "name", hint="the doors make one up"))
    compute, options, problems = _compute(spec, clusters)
    table = environments.table()
    on = recipe.Compute(compute.name, bool(options.get("container")))
    try:
        of = recipe.resolve(spec.environment, on, table, environments.find)
        of = of._replace(asked=of.asked or submission.environment_asked)
    except SpecError as error:
        of, problems = recipe.Resolved(), [*problems, *error.problems]
    try:
        lie = places(spec, datastores, home, find)
        refuse_taken(spec, datastores.versions)
    except SpecError as error:
        lie, problems = {}, [*problems, *error.problems]
    made = _compiled(
        spec,
        CompileContext(
            name=spec.name,
            record=str(home.jobs / spec.name),
            argv=AGENT,
            engine=compute.type,
            base=submission.base,
            code=submission.code,
            in_place=submission.in_place,
            places=lie,
            compute=compute.name,
            options=options,
            server_address=compute.server_address or "",
            meant=of,
            table=table,
            environments=str(home.environments),
            uv=uv(),
            tools=submission.tools,
            cache=str(home.cache),
            tier="spot" if compute.tier == "low_priority" else "",
            gpus=None if problems else choice(spec, compute, options, clusters),
            continues=submission.continues,
            previous=submission.previous,
            look=submission.look,
        ),
        problems,
    )
    clusters.engine(clusters.cluster(made)).admit(made.gang)
    return made


def submit(
    submission: Submission,
    services: Services,
    by: str,
    known: Environments | None = None,
    after: JobRow | None = None,
) -> tuple[JobRow, Carried | None]:
    """Record the job and set it going; it starts with what the ended job ``after`` left, which is
    told, too. Nothing is left behind when it is refused."""
    known = known or services.environments
    made = plan(
        submission,
        services.home,
        services.clusters,
        known,
        services.datastores,
        services.records.get,
    )
    spec, models = signed(submission.spec, by), services.models.versions
    if made.task.environment:
        # Run again, it gets what it got; `@latest` may be another by then.
        spec["environment"] = f"azureml:{made.task.environment}"
    for each in made.task.inputs:
        if each.asset:
            was, is_model = spec["inputs"][each.name], models.has(each.source)
            spec["inputs"] = {**spec["inputs"], each.name: _pinned(was, each.asset, is_model)}
    if after is not None:
        # Before anything is copied.
        _hold_to_code(submission, services)
        services.records.check_name_is_free(made.task.job)
    with Continuation(services, made.task, after) as begun, services.coming:
        models.hold_to(each.source for each in made.task.inputs)
        _hold_to_code(submission, services)
        for other in referred(spec.get("inputs")):
            services.records.get(other)
        if not services.records.ever_existed(made.task.job):
            begun.place()
            if submission.diff:
                kept = diff_of(made.task.record)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(submission.diff, encoding="utf-8")
        row = services.records.create(spec, made, begun.about())
        begun.keep()
    services.loops.wake(row.name)
    return row, begun.carried


def _hold_to_code(submission: Submission, services: Services) -> None:
    if submission.code is not None and not services.blobs.is_complete(submission.code):
        raise MissingCode("the server does not have this code yet", hint="send it first")


def notes(made: Plan, kind: Kind) -> list[str]:
    """What who submits a job should know: the GPUs that it gets, and what it asked for that its
    compute has nothing for."""
    has = kind.spot
    if not made.gang.spot or has == () or any(made.gang.options.get(each) for each in has or ()):
        return [*made.notes]
    mend = f" without `{has[0]}`" if has else ""
    return [*made.notes, f"{made.compute} treats a spot job{mend} as any other"]


def _pinned(given: Any, asset: str, is_model: bool) -> Any:
    """An input that names a data asset or a model, with the version it was, and which of the two:
    one day there may be both."""
    found = {**(given if isinstance(given, Mapping) else {}), "path": f"azureml:{asset}"}
    if is_model and found.get("type") not in TYPES:
        found["type"] = TYPES[0]
    return found


def diff_of(record: str) -> Path:
    """Where a job keeps what of its code is in no commit."""
    return Path(record, "artifacts", "system_logs", "uncommitted.diff")


@lru_cache(maxsize=1)
def uv() -> str:
    """The program that makes environments, as it is called here; empty: there is none."""
    from uv import find_uv_bin  # lazy: few jobs need it

    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return ""


def _compiled(spec: CommandJob, context: CompileContext, problems: list[Problem]) -> Plan:
    """The plan, unless there are problems: all of them are told at once."""
    try:
        made = compile(spec, context)
    except SpecError as error:
        problems = [*problems, *error.problems]
    if problems:
        raise SpecError(problems)
    return made


def _compute(spec: CommandJob, clusters: Clusters) -> tuple[Compute, dict[str, Any], list[Problem]]:
    """The job's compute, its options, and what is wrong with them; where there is no such compute,
    the one that is always there, so that all else that is wrong can be told too."""
    try:
        compute = clusters.find(spec.compute)
    except SpecError as error:
        return clusters.find(clusters.first), {}, list(error.problems)
    try:
        options, problems = clusters.options(compute, spec), []
    except SpecError as error:
        options, problems = {}, list(error.problems)
    wanted, most = spec.resources.instance_count, compute.max_instances
    if most is not None and wanted > most:
        where = "resources.instance_count"
        message = f"{wanted} nodes are more than the {most} that {compute.name!r} may have"
        hint = f"ask for fewer, or: allranks compute update {compute.name} --max-instances {wanted}"
        problems.append(Problem(message, where, hint=hint))
    return compute, options, problems
