"""Run an ended job again under the next free name. The ended job is never changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from allranks.engines.registry import KINDS
from allranks.errors import Conflict, SpecError, UsageError
from allranks.plan import text
from allranks.plan.job.continuation import Carried
from allranks.server.dependencies import Services
from allranks.server.submission.continuation import end_of, ended
from allranks.server.submission.submit import NO_SUBMISSION, Submission, diff_of, submit
from allranks.spec.yaml.load import override_keys
from allranks.store.jobs.job_rows import JobRow

# The prefix of Azure ML's properties with git information.
_OF_GIT = "azureml.git."


class Code(NamedTuple):
    """Other code for a restarted job: the digest of its snapshot, the ``path`` of its folder, git
    properties, and the ``diff`` of uncommitted changes."""

    code: str
    path: str
    properties: Mapping[str, str] = {}
    diff: str = ""

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
        return made


def restart(
    row: JobRow,
    services: Services,
    by: str,
    *,
    fresh: bool = False,
    code: Code | None = None,
    overrides: Sequence[str] = (),
) -> tuple[JobRow, Carried | None]:
    """Submit the job again, with its files and state unless ``fresh``, with ``code`` instead of
    its own if given, and with each ``a.b=c`` of ``overrides`` set in its spec. Raises Conflict for
    a job that has not ended."""
    ended(row)
    if (flaw := text.flaw(row.spec, "spec")) is not None:
        message = f"{row.name} cannot be submitted again: {flaw.where}: {flaw.message}"
        raise Conflict(message, hint="submit a new job with a corrected text")
    task = row.plan.task
    if fresh and task.state:
        hint = f"allranks state delete {task.state}, or restore a version of it"
        raise UsageError(f"{row.name} shares the state {task.state} with other jobs", hint=hint)
    if code is not None and task.in_place:
        raise Conflict(
            f"{row.name} runs its code in place, in {task.in_place}",
            hint=f"change the code there, then: allranks job restart {row.name}",
        )
    spec = deepcopy(dict(row.spec))
    if (tags := dict(services.annotations.of(row.id).tags)) or "tags" in spec:
        spec["tags"] = tags
    diff_file = diff_of(task.record)
    diff = diff_file.read_text(encoding="utf-8") if diff_file.exists() else ""
    digest = task.code
    if code is not None:
        spec, digest, diff = _with_code(spec, code), code.code, code.diff
    _override(spec, overrides)
    environments, after = services.environments.with_deleted(), None if fresh else row
    submission = Submission(
        spec,
        digest,
        task.in_place,
        task.base,
        task.tools,
        diff,
        continues=row.name,
        previous=end_of(row),
        environment_asked=task.environment_asked,
    )
    while True:
        name = _next_name(row.name, services)
        submission = submission._replace(spec={**spec, "name": name})
        try:
            return submit(submission, services, by, environments, after=after)
        except Conflict as error:
            # A concurrent restart of the job took the name.
            if error.where != "name" or not services.records.ever_existed(name):
                raise


def _override(spec: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set each override. Raises UsageError for those that a restart decides itself."""
    for each in overrides:
        if (key := each.partition("=")[0].strip()) in ("name", "code", "snapshot"):
            hint = "a restarted job is named after the one before; other code: -C DIR"
            raise UsageError(f"`{key}` cannot be set", where="--set", hint=hint)
    override_keys(spec, {}, overrides, typed=True, engines=[*KINDS])


def _next_name(name: str, services: Services) -> str:
    base, number = re.sub(r"-r\d+$", "", name), 2
    while services.records.ever_existed(f"{base}-r{number}"):
        number += 1
    return f"{base}-r{number}"


def _with_code(spec: Mapping[str, Any], code: Code) -> dict[str, Any]:
    before = (spec.get("properties") or {}).items()
    kept = {name: value for name, value in before if not name.startswith(_OF_GIT)}
    return {**spec, "code": code.path, "properties": {**kept, **code.properties}}
