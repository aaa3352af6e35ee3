"""Run an ended job again under the next free name. The ended job is never changed.

A job that did not complete goes on from the files that it left. A completed one runs anew: its
final checkpoint would leave nothing to train.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

from allranks.core.job.code_packages import NOT_RECORDED
from allranks.core.job.continuation import Carried
from allranks.core.job.marks import without_marks
from allranks.core.plan import CurrentPython
from allranks.engines.registry import KINDS
from allranks.errors import Conflict, SpecError, UsageError
from allranks.server.dependencies import Services
from allranks.server.jobs.resolve_job_name import original
from allranks.server.submission.continuation import end_of, ended
from allranks.server.submission.submit import NO_SUBMISSION, Submission, read_diff, submit
from allranks.spec.yaml.load import override_keys
from allranks.spec.yaml.unused_overrides import unread_inputs
from allranks.statuses import JobStatus
from allranks.store.jobs.job_rows import JobRow

T = TypeVar("T")

# The properties that tell of the code: of Azure ML, with git's information, and ours.
_OF_CODE = ("azureml.git.", NOT_RECORDED)

_PYTHON = ("python", "base", "tools")


class Code(NamedTuple):
    """Other code for a restarted job: the digest of its snapshot, the ``path`` of its folder, git
    properties, and the ``diff`` of uncommitted changes. ``python``: the submitter's of now, with
    the variables that belong to it, if its packages go along with the code."""

    code: str
    path: str
    properties: Mapping[str, str] = {}
    diff: str = ""
    python: CurrentPython | None = None
    base: Mapping[str, str] = {}
    tools: Mapping[str, str] = {}

    @staticmethod
    def load(data: Any) -> Code | None:
        if data is None:
            return None
        valid = isinstance(data, dict) and {"code", "path"} <= data.keys() <= {*Code._fields}
        if not valid or not isinstance(data.get("properties", {}), dict):
            raise SpecError(NO_SUBMISSION)
        made = Code(**data)
        properties = (*made.properties, *made.properties.values())
        if not all(isinstance(e, str) for e in (made.code, made.path, made.diff, *properties)):
            raise SpecError(NO_SUBMISSION)
        sent = Submission.load({"spec": {}, **{key: data[key] for key in _PYTHON if key in data}})
        return made._replace(python=sent.python)


class Restarted(NamedTuple):
    """The restarted job ``row``: whether it ``resumed``, the ``sentence`` that says so, the files
    it got, and ``notes`` for its submitter."""

    row: JobRow
    resumed: bool
    sentence: str
    carried: Carried | None = None
    notes: tuple[str, ...] = ()


def resumes(row: JobRow, *, resume: bool, fresh: bool) -> bool:
    """Whether a restart of the ended job goes on from what it left. Raises Conflict for a job that
    has not ended, UsageError if both are chosen."""
    ended(row)
    if resume and fresh:
        hint = "choose one, or neither: a job that did not complete is then resumed"
        raise UsageError("a restart either resumes or is fresh", where="--resume", hint=hint)
    return resume or not (fresh or row.record.status is JobStatus.COMPLETED)


def restart(
    row: JobRow,
    services: Services,
    by: str,
    *,
    resume: bool = False,
    fresh: bool = False,
    code: Code | None = None,
    overrides: Sequence[str] = (),
) -> Restarted:
    """Submit the job again, with ``code`` instead of its own if given, and with each ``a.b=c`` of
    ``overrides`` set in its spec. ``resume`` and ``fresh`` override the rule whether it gets its
    files and state. Raises as ``resumes``."""
    resumed = resumes(row, resume=resume, fresh=fresh)
    task = row.plan.task
    if code is not None and task.in_place:
        hint = f"change the code there, then: allranks job restart {row.name}"
        raise Conflict(f"{row.name} runs its code in place, in {task.in_place}", hint=hint)
    spec = tagged_spec(row, services)
    diff, digest = read_diff(task.record), task.code
    if code is not None:
        spec, digest, diff = _with_code(spec, code), code.code, code.diff
    notes = override(spec, overrides)
    environments, after = services.environments.with_deleted(), row if resumed else None
    submission = Submission(
        spec,
        digest,
        task.in_place,
        {**task.base, **row.plan.gang.env},
        task.tools,
        diff,
        continues=row.name if resumed else "",
        previous=end_of(row) if resumed else "",
        environment_asked=task.environment_asked,
        python=task.current,
    )
    if code is not None and code.python is not None:
        submission = submission._replace(python=code.python, base=code.base, tools=code.tools)

    def submit_as(name: str) -> tuple[JobRow, Carried | None]:
        named = submission._replace(spec={**spec, "name": name})
        return submit(
            named, services, by, environments, after=after, restarts=row.name, resume=resume
        )

    made, carried = under_next_name(row.name, services, submit_as)
    if not resumed and (state := made.plan.task.state):
        notes += (
            f"the state {state} goes on, as every state with a name; to empty it: "
            f"allranks state delete {state}",
        )
    return Restarted(made, resumed, _sentence(row, made, resumed, resume or fresh), carried, notes)


def _sentence(row: JobRow, made: JobRow, resumed: bool, chosen: bool) -> str:
    what = f"goes on from what {row.name} left" if resumed else "runs anew"
    if chosen:
        return f"{made.name} {what}"
    other = f"`--resume` goes on from what {row.name} left"
    if resumed:
        other = "`--fresh` runs it anew"
    return f"{made.name} {what}, because {row.name} is {row.record.status} ({other})"


def tagged_spec(row: JobRow, services: Services) -> dict[str, Any]:
    """A copy of the job's spec with its current tags, but its note and its star."""
    spec = deepcopy(dict(row.spec))
    if (tags := without_marks(services.annotations.of(row.id).tags)) or "tags" in spec:
        spec["tags"] = tags
    return spec


def under_next_name(name: str, services: Services, submit_as: Callable[[str], T]) -> T:
    """Submit under the first free name of ``name``-r2, ``name``-r3, …"""
    while True:
        new = _next_name(name, services)
        try:
            return submit_as(new)
        except Conflict as error:
            # A concurrent restart of the job took the name.
            if error.where != "name" or not services.records.ever_existed(new):
                raise


def override(spec: dict[str, Any], overrides: Sequence[str]) -> tuple[str, ...]:
    """Set each override; returns notes on those that nothing reads. Raises UsageError for those
    that a restart decides itself."""
    for text in overrides:
        if (key := text.partition("=")[0].strip()) in ("name", "code", "snapshot"):
            hint = "a restarted job is named after the one before; other code: -C DIR"
            raise UsageError(f"`{key}` cannot be set", where="--set", hint=hint)
    override_keys(spec, {}, overrides, typed=True, engines=[*KINDS])
    return tuple(unread_inputs(spec, overrides))


def _next_name(name: str, services: Services) -> str:
    base, number = original(name), 2
    while services.records.ever_existed(f"{base}-r{number}"):
        number += 1
    return f"{base}-r{number}"


def _with_code(spec: Mapping[str, Any], code: Code) -> dict[str, Any]:
    before = (spec.get("properties") or {}).items()
    kept = {name: value for name, value in before if not name.startswith(_OF_CODE)}
    return {**spec, "code": code.path, "properties": {**kept, **code.properties}}
