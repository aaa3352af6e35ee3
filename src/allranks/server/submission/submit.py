"""Submit a job: validate and compile it, let its engine admit it, record it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.core.environments import recipe
from allranks.core.job.compile import CompileContext, compile
from allranks.core.job.continuation import Carried
from allranks.core.job.images import portable
from allranks.core.job.services import service_notes
from allranks.core.job.sessions import inside, on_nodes_of_parent
from allranks.core.packing import unpack
from allranks.core.plan import CurrentPython, Plan
from allranks.engines.base import Kind
from allranks.errors import Conflict, Forbidden, MissingCode, NotFound, Problem, SpecError
from allranks.server.assets.data_locations import Find, NodeDisks, places, referred
from allranks.server.assets.environments import Environments
from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.clusters.clusters import Clusters
from allranks.server.clusters.default_gpus import choice
from allranks.server.dependencies import Services
from allranks.server.ending.output_assets import refuse_taken
from allranks.server.jobs.services import missing_program
from allranks.server.jobs.view import signed, submitter
from allranks.server.submission.continuation import Continuation, set_aside
from allranks.spec.compute import Compute
from allranks.spec.ignored_keys import job_notes
from allranks.spec.job import CommandJob, parse
from allranks.spec.model import TYPES
from allranks.store.jobs.job_rows import COMMAND, Child, JobRow
from allranks.store.jobs.new_job import NewJob
from allranks.store.key_values import read_once

# -P: do not import from the working folder, which is the user's.
AGENT = (sys.executable, "-P", "-m", "allranks.agent")
# The limits of ``look``, in seconds.
_LEAST_PACE, _MOST_PACE = 0.05, 60.0
# Bytes that are read of a diff; clients send a megabyte.
_LONGEST = 4 << 20
NO_SUBMISSION = Problem(
    "malformed submission: expected {spec, code, in_place, base, tools, diff}",
    hint="use the command line or the SDK of this version",
)


class Submission(NamedTuple):
    """A submission by the CLI or the SDK: the spec with absolute paths, the digest or folder of the
    code, the submitter's environment variables (``base``), their variables for pip and uv
    (``tools``), and the ``diff`` of uncommitted changes. ``continues`` is the ended job whose files
    it starts from, ``previous`` why that one ended. ``look``: seconds between two syncs of its
    state, for a rehearsal. ``environment_asked``: the environment that the continued job named.
    ``python``: the submitter's Python, for nodes that may lack it. ``serves``: it is a replica of a
    deployment; ``parent``: it runs on the nodes that this parent keeps; only the server says so."""

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
    python: CurrentPython | None = None
    serves: bool = False
    parent: str = ""

    @staticmethod
    def load(data: Any) -> Submission:
        if not isinstance(data, dict) or not isinstance(data.get("spec"), dict):
            raise SpecError(NO_SUBMISSION)
        made = Submission(**{name: data[name] for name in Submission._fields if name in data})
        made = made._replace(serves=False, parent="")
        if made.python is not None:
            made = made._replace(python=_python(made.python))
        texts = (made.code or "", made.in_place or "", made.diff, made.continues, made.previous)
        plain = all(isinstance(text, str) for text in (*texts, made.environment_asked))
        if made.look is not None and not _is_pace(made.look):
            raise SpecError(NO_SUBMISSION)
        if not plain or not all(map(_is_text_map, (made.base, made.tools))):
            raise SpecError(NO_SUBMISSION)
        return made


def _python(data: Any) -> CurrentPython:
    """Raises SpecError."""
    several = ("sites", "requirements", "notes")
    if not isinstance(data, dict) or data.keys() != {*CurrentPython._fields}:
        raise SpecError(NO_SUBMISSION)
    for name, value in data.items():
        texts = value if name in several and isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise SpecError(NO_SUBMISSION)
    return unpack(CurrentPython, data)


def _is_pace(data: Any) -> bool:
    return type(data) in (int, float) and _LEAST_PACE <= data <= _MOST_PACE


def _is_text_map(data: Any) -> bool:
    return isinstance(data, Mapping) and all(
        isinstance(key, str) for key in (*data.keys(), *data.values())
    )


def plan(submission: Submission, assets: PlanningAssets) -> Plan:
    """The plan of a submission. Has no effects, but may query the cluster for its GPUs. Raises
    SpecError for an invalid job, Refused for one that never fits the compute."""
    home, clusters, environments, datastores, _, find = assets
    spec = parse(submission.spec)
    name = spec.name
    if name is None:
        raise SpecError(Problem("a job needs a name", "name", hint="the CLI generates one"))
    session = None if spec.inside is None else session_of(spec.inside, find)
    if session is not None:
        submission, spec = on_nodes_of(session, submission, spec)
    compute, options, problems = _compute(spec, clusters)
    on = _runs_on(compute, options, clusters)
    table = environments.table()
    try:
        of = recipe.resolve(spec.environment, on, table, environments.find)
        of = of._replace(asked=of.asked or submission.environment_asked)
    except SpecError as error:
        of, problems = recipe.Resolved(), [*problems, *error.problems]
    kind = clusters.kind(compute)
    try:
        disks = NodeDisks(kind.shared_home(options), kind.mounts(options), kind.remote)
        lie = places(spec, datastores, home, find, disks)
        refuse_taken(spec, datastores.versions)
    except SpecError as error:
        lie, problems = {}, [*problems, *error.problems]
    made = _compiled(
        spec,
        CompileContext(
            name=name,
            record=str(home.jobs / name),
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
            tools=portable(submission.tools, kind.images),
            cache=str(home.cache),
            tier="spot" if compute.tier == "low_priority" else "",
            gpus=None if problems else choice(spec, compute, options, clusters),
            continues=submission.continues,
            previous=submission.previous,
            look=submission.look,
            images=kind.images,
            shared_home=kind.shared_home(options),
            python=submission.python,
            serves=submission.serves,
            remote=kind.remote,
        ),
        problems,
    )
    if session is not None:
        inherits = spec.environment is None
        made = inside(made, session.name, session.plan, inherits=inherits)
    if submission.parent:
        made = on_nodes_of_parent(made, submission.parent)
    clusters.engine(clusters.cluster(made)).admit(made.gang)
    return made


def session_of(name: str, find: Find | None) -> JobRow:
    """The session that a job is to run in. Raises SpecError."""
    if find is None:
        hint = "leave --dry-run out"
        raise SpecError(Problem("only the server can look into a session", "inside", hint=hint))
    try:
        row = find(name)
    except NotFound:
        row = None
    if row is None or row.type != COMMAND or row.spec.get("session") is None:
        what = f"no session named {name!r}" if row is None else f"{name} is no session"
        hint = "`allranks dev list` lists them; `allranks dev` starts one"
        raise SpecError(Problem(what, "inside", hint=hint))
    if row.parent is not None:
        what, hint = f"{name} keeps nodes for the jobs of {row.parent}", "start one: allranks dev"
        raise SpecError(Problem(what, "inside", hint=hint))
    return row


def on_nodes_of(
    session: JobRow, submission: Submission, spec: CommandJob
) -> tuple[Submission, CommandJob]:
    """The job on the session's compute, with its GPUs and its environment if it names none."""
    gpus = spec.resources.gpus_per_instance
    resources = spec.resources.model_copy(
        update={"gpus_per_instance": session.plan.gang.gpus if gpus is None else gpus}
    )
    spec = spec.model_copy(update={"compute": session.plan.compute, "resources": resources})
    if spec.environment is None:
        task = session.plan.task
        submission = submission._replace(base=task.base, tools=task.tools, python=None)
    return submission, spec


def _runs_on(compute: Compute, options: Mapping[str, Any], clusters: Clusters) -> recipe.Compute:
    images = clusters.kind(compute).images or bool(options.get("container"))
    return recipe.Compute(compute.name, images)


def submit(
    submission: Submission,
    services: Services,
    by: str,
    environments: Environments | None = None,
    after: JobRow | None = None,
    child: Child | None = None,
    restarts: str = "",
    resume: bool = False,
) -> tuple[JobRow, Carried | None]:
    """Record and start a job; with ``after`` it starts from copies of that ended job's files, which
    are returned as well; with ``resume``, too, it is refused if there are none. ``child``: it is
    the child of another job. ``restarts``: the job that it was made from. A refused job leaves no
    trace."""
    services.clusters.prepare(submission.spec.get("compute"))
    spec, made = _planned(submission, services, by, environments)
    if after is not None:
        # Checked before anything is copied.
        require_code(submission, services)
        services.records.check_name_is_free(made.task.job)
    services.require_unchanged(_sources(made))
    with Continuation(services, made.task, after) as continuation, services.admission_lock:
        _require_what_it_needs(submission, made, spec, services)
        if not services.records.ever_existed(made.task.job):
            continuation.place()
            carried = continuation.carried
            if resume and carried is not None and not (carried.files or carried.notes):
                hint = f"run it anew: allranks job restart {restarts} --fresh"
                if carried.kept:
                    hint += f"; what it kept: allranks job files {restarts}"
                raise Conflict(carried.sentence(0.0), where="--resume", hint=hint)
            _write_diff(submission, made)
        about = continuation.about() | ({"restarts": restarts} if restarts else {})
        row = services.records.create(spec, made, about, child=child)
        continuation.keep()
    services.loops.wake(row.name)
    return row, continuation.carried


def submit_all(submissions: Sequence[Submission], services: Services, by: str) -> list[JobRow]:
    """Record and start several jobs: all, or none.

    Raises SpecError with the problems of every job, placed at `jobs.NUMBER` of the sequence.
    """
    planned = list[tuple[dict[str, Any], Plan]]()
    problems = list[Problem]()
    with read_once():
        for number, submission in enumerate(submissions):
            try:
                if submission.continues:
                    hint = "submit it by itself"
                    raise SpecError(Problem("a job of a list continues no other", hint=hint))
                planned.append(_planned(submission, services, by))
            except SpecError as error:
                problems += [problem.below(f"jobs.{number}") for problem in error.problems]
    if problems:
        raise SpecError(problems)
    services.require_unchanged([source for _, made in planned for source in _sources(made)])
    with services.admission_lock:
        for submission, (spec, made) in zip(submissions, planned, strict=True):
            _require_what_it_needs(submission, made, spec, services)
            set_aside(services, made.task)
        rows = services.records.create_all([NewJob(spec, made) for spec, made in planned])
        for submission, (_, made) in zip(submissions, planned, strict=True):
            _write_diff(submission, made)
    for row in rows:
        services.loops.wake(row.name)
    return rows


def _planned(
    submission: Submission, services: Services, by: str, environments: Environments | None = None
) -> tuple[dict[str, Any], Plan]:
    """The spec as it is stored, and the plan. Raises as ``plan``."""
    made = plan(submission, services.planning(environments))
    _require_own_session(made, services, by)
    spec, models = signed(submission.spec, by), services.models.versions
    if pinned := recipe.reference(made.task.environment):
        # For restarts: `@latest` may change.
        spec["environment"] = pinned
    for each in made.task.inputs:
        if each.asset:
            was, is_model = spec["inputs"][each.name], models.has(each.source)
            spec["inputs"] = {**spec["inputs"], each.name: _pinned(was, each.asset, is_model)}
    return spec, made


def _require_own_session(made: Plan, services: Services, by: str) -> None:
    """Raise Forbidden if the job would run as somebody else, in their session."""
    if name := made.task.inside:
        owner = submitter(services.records.get(name).spec)
        if owner != by:
            hint = f"ask {owner}, or start a session of your own: allranks dev"
            raise Forbidden(f"{name} is {owner}'s session", hint=hint)


def _require_what_it_needs(
    submission: Submission, made: Plan, spec: Mapping[str, Any], services: Services
) -> None:
    """Raise if the job's code, models or other jobs are not here."""
    services.models.versions.require_existing(each.source for each in made.task.inputs)
    services.uploads.require(_sources(made))
    require_code(submission, services)
    for other in referred(spec.get("inputs")):
        services.records.get(other)


def _sources(made: Plan) -> list[str | None]:
    """Where the job's inputs come from."""
    return [item.source for item in made.task.inputs]


def _write_diff(submission: Submission, made: Plan) -> None:
    """Store the uncommitted changes of the job's code."""
    if submission.diff:
        diff_file = diff_of(made.task.record)
        diff_file.parent.mkdir(parents=True, exist_ok=True)
        diff_file.write_text(submission.diff, encoding="utf-8")


def require_code(submission: Submission, services: Services) -> None:
    """Raise MissingCode if the server lacks the submission's code."""
    if submission.code is not None and not services.blobs.is_complete(submission.code):
        raise MissingCode("the code has not been uploaded yet", hint="upload it first")


def job_and_plan_notes(name: str, spec: Mapping[str, Any], made: Plan, kind: Kind) -> list[str]:
    """Notes for the submitter: those of the plan, keys without effect, and how to open services."""
    noted = [*notes(made, kind), *job_notes(spec)]
    if spec.get("services"):
        noted += service_notes(name, parse(spec).to_dict()["services"])
        missing = "" if kind.remote else missing_program(made.task)
        noted += [missing] if missing else []
    return noted


def notes(made: Plan, kind: Kind) -> list[str]:
    """Those of the plan, and whether the compute ignores spot."""
    required = kind.spot
    options = made.gang.options
    if not made.gang.spot or required == () or any(options.get(each) for each in required or ()):
        return [*made.notes]
    without = f" without `{required[0]}`" if required else ""
    return [*made.notes, f"{made.compute} treats a spot job{without} like any other job"]


def _pinned(value: Any, asset: str, is_model: bool) -> Any:
    """An input that names a data asset or a model, pinned to its version and its kind."""
    pinned = {**(value if isinstance(value, Mapping) else {}), "path": f"azureml:{asset}"}
    if is_model and pinned.get("type") not in TYPES:
        pinned["type"] = TYPES[0]
    return pinned


def diff_of(record: str) -> Path:
    """The file with the uncommitted changes of a job's code."""
    return Path(record, "artifacts", "system_logs", "uncommitted.diff")


def read_diff(record: str) -> str:
    """What is in it; empty without one, or where the job has put something else in its place."""
    with folder_trees.SkipAbsent():
        return folder_trees.read_file(diff_of(record), _LONGEST, record).decode(errors="replace")
    return ""


@lru_cache(maxsize=1)
def uv() -> str:
    """The path of uv, which builds environments; empty if not installed."""
    from uv import find_uv_bin  # lazy: few jobs need it

    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return ""


def _compiled(spec: CommandJob, context: CompileContext, problems: list[Problem]) -> Plan:
    """The plan. Raises SpecError with earlier problems and those of compiling."""
    try:
        made = compile(spec, context)
    except SpecError as error:
        problems = [*problems, *error.problems]
    if problems:
        raise SpecError(problems)
    return made


def _compute(spec: CommandJob, clusters: Clusters) -> tuple[Compute, dict[str, Any], list[Problem]]:
    """The job's compute, its options and their problems. For an unknown compute the built-in one,
    so that all other problems are reported as well."""
    try:
        compute = clusters.find(spec.compute)
    except SpecError as error:
        return clusters.find(clusters.first), {}, list(error.problems)
    try:
        options, problems = clusters.options(compute, spec), []
    except SpecError as error:
        options, problems = {}, list(error.problems)
    nodes, most = spec.resources.instance_count, compute.max_instances
    if most is not None and nodes > most:
        where = "resources.instance_count"
        message = f"{nodes} nodes exceed the limit of {most} of the compute {compute.name!r}"
        hint = f"request fewer, or: allranks compute update {compute.name} --max-instances {nodes}"
        problems.append(Problem(message, where, hint=hint))
    return compute, options, problems
