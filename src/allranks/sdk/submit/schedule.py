"""Read the file of a schedule, with its job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.errors import Problem, SpecError
from allranks.sdk.submit.paths import absolute, without_scheme
from allranks.spec.any_job import parse_any
from allranks.spec.fields.problems import below, in_file, placed
from allranks.spec.fields.scalars import sendable
from allranks.spec.schedule import parse_schedule
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document


def read_schedule(
    file: Path, name: str | None = None
) -> tuple[Document, Document, Path, Mapping[str, int]]:
    """The schedule's spec, the spec of its job, the folder that the job's paths start at, and the
    lines of the schedule's keys. Raises SpecError with the file that is wrong.

    ``create_job`` is the path of a job's file, a mapping with ``job`` as that path and keys that
    override it, or a whole job.
    """
    data, lines = load.read(load.content(file), file=str(file))
    data = sendable({**data, **({"name": name} if name else {})})
    schedule = parse_schedule(data, lines, str(file))
    create_job, base = schedule.create_job, file.absolute().parent
    if isinstance(create_job, str):
        create_job = {"job": create_job}
    if isinstance(create_job.get("job"), str):
        job_file = absolute(without_scheme(create_job["job"]), base)
        if not job_file.is_file():
            hint = f"relative paths start at {base}"
            problem = Problem(f"job file {str(job_file)!r} not found", "create_job", hint=hint)
            raise SpecError(placed(problem, lines), file=str(file))
        job, job_lines = load.read(load.content(job_file), file=str(job_file))
        own = {key: value for key, value in create_job.items() if key not in ("job", "type")}
        merged = _merged(job, own)
        made = parse_any(merged, job_lines, str(job_file)).to_dict()
        return data, made, job_file.parent, lines
    with in_file(file, lines), below("create_job"):
        made = parse_any(create_job).to_dict()
    return data, made, base, lines


def _merged(job: Mapping[str, Any], own: Mapping[str, Any]) -> Document:
    """The job with keys that override it; those of its sections one by one."""
    made = dict(job)
    for key, value in own.items():
        section = made.get(key)
        if isinstance(section, Mapping) and isinstance(value, Mapping):
            value = {**section, **value}
        made[key] = value
    return made
