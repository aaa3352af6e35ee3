"""Running an ended job again, under the next free name: an ended job itself is never changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.errors import Conflict, SpecError, UsageError
from allranks.plan import text
from allranks.plan.job.continuation import Carried
from allranks.server.dependencies import Services
from allranks.server.submission.continuation import end_of, ended
from allranks.server.submission.submit import NO_SUBMISSION, Submission, diff_of, submit
from allranks.store.job_rows import JobRow

# Azure ML's names of what git said of the code.
_OF_GIT = "azureml.git."


class Code(NamedTuple):
    """Other code for a job that is run again: the digest of its snapshot, the ``path`` that it was
    taken of, what git says of it, and what of it is in no commit."""

    code: str
    path: str
    properties: Mapping[str, str] = {}
    diff: str = ""

    @staticmethod
    def load(data: Any) -> Code | None:
        if data is None:
            return None
        known = isinstance(data, dict) and {"code", "path"} <= data.keys() <= {*Code._fields}
        if not known or not isinstance(data.get("properties", {}), dict):
            raise SpecError(NO_SUBMISSION)
        made = Code(**data)
        properties = (*made.properties, *made.properties.values())
        if not all(isinstance(e, str) for e in (made.code, made.path, made.diff, *properties)):
            raise SpecError(NO_SUBMISSION)
        return made


def restart(
    row: JobRow, services: Services, by: str, *, fresh: bool = False, code: Code | None = None
) -> tuple[JobRow, Carried | None]:
    """The same job once more, with what it left; ``fresh``: with nothing of it. ``code`` takes the
    place of its own. Raises Conflict for a job that has not ended."""
    ended(row)
    if (flaw := text.flaw(row.spec, "spec")) is not None:
        message = f"{row.name} cannot be submitted again: {flaw.where}: {flaw.message}"
        raise Conflict(message, hint="submit it anew with another text")
    task = row.plan.task
    if fresh and task.state:
        hint = f"allranks state delete {task.state}, or restore a version of it"
        raise UsageError(
            f"{row.name} has the state {task.state}, which others have, too", hint=hint
        )
    if code is not None and task.in_place:
        raise Conflict(
            f"{row.name} runs in {task.in_place} itself, and finds the code there as it is now",
            hint=f"change it there, then: allranks job restart {row.name}",
        )
    spec = dict(row.spec)
    if (tags := dict(services.annotations.of(row.id).tags)) or "tags" in spec:
        spec["tags"] = tags
    kept = diff_of(task.record)
    diff = kept.read_text(encoding="utf-8") if kept.exists() else ""
    digest = task.code
    if code is not None:
        spec, digest, diff = _with_code(spec, code), code.code, code.diff
    of_code = digest, task.in_place, task.base, task.tools, diff
    known, after = services.environments.with_deleted(), None if fresh else row
    asked = task.environment_asked
    submission = Submission(spec, *of_code, row.name, end_of(row), environment_asked=asked)
    while True:
        name = _next_name(row.name, services)
        submission = submission._replace(spec={**spec, "name": name})
        try:
            return submit(submission, services, by, known, after=after)
        except Conflict as error:
            # Another restart of the job was done with its copying first.
            if error.where != "name" or not services.records.ever_existed(name):
                raise


def _next_name(name: str, services: Services) -> str:
    base, number = re.sub(r"-r\d+$", "", name), 2
    while services.records.ever_existed(f"{base}-r{number}"):
        number += 1
    return f"{base}-r{number}"


def _with_code(spec: Mapping[str, Any], code: Code) -> dict[str, Any]:
    before = (spec.get("properties") or {}).items()
    kept = {name: value for name, value in before if not name.startswith(_OF_GIT)}
    return {**spec, "code": code.path, "properties": {**kept, **code.properties}}
