"""Build jobs in Python with the same models as YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Never

from pydantic import BaseModel

from allranks.sdk.submit.command import Command
from allranks.spec.any_job import AnyJob
from allranks.spec.fields.python_forms import as_in_a_file
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import (
    Distribution,
    Environment,
    Input,
    Limits,
    Metric,
    OnFailure,
    Output,
    QueueSettings,
    Resources,
    Session,
)
from allranks.spec.retry import Retry
from allranks.spec.services import Identity, JobService
from allranks.spec.yaml import load

if TYPE_CHECKING:
    from allranks.api.common import Document

# Keywords of `command` and the section of the job they belong to.
_SECTIONS = {
    word: section
    for section, part in (
        ("resources", Resources),
        ("limits", Limits),
        ("queue_settings", QueueSettings),
    )
    for word in part.model_fields
    if word not in CommandJob.model_fields
}


def command(
    *,
    command: str | Sequence[str | int | float | os.PathLike[str]],
    code: str | os.PathLike[str] | None = None,
    name: str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    experiment_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    environment: str | Environment | Mapping[str, Any] | None = None,
    environment_variables: Mapping[str, object] | None = None,
    compute: str | None = None,
    distribution: Distribution | Mapping[str, Any] | None = None,
    inputs: Mapping[str, Input | Output | bool | int | float | str | Mapping[str, Any]]
    | None = None,
    outputs: Mapping[str, Output | Mapping[str, Any] | None] | None = None,
    resources: Resources | Mapping[str, Any] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    instance_count: int | None = None,
    instance_type: str | None = None,
    max_instance_count: int | None = None,
    gpus_per_instance: int | None = None,
    shm_size: str | None = None,
    docker_args: str | Sequence[str] | None = None,
    locations: Sequence[str] | None = None,
    timeout: float | None = None,
    queue_settings: QueueSettings | Mapping[str, Any] | None = None,
    job_tier: str | None = None,
    priority: str | None = None,
    services: Mapping[str, JobService | Mapping[str, Any]] | None = None,
    identity: Identity | Mapping[str, Any] | None = None,
    parent_job_name: str | None = None,
    metrics: Mapping[str, str | Metric | Mapping[str, Any]] | None = None,
    state: str | None = None,
    keep_work: str | None = None,
    warm: Sequence[str] | None = None,
    retry: Retry | Mapping[str, Any] | None = None,
    hang_timeout: float | None = None,
    flight_recorder: bool | None = None,
    on_failure: OnFailure | Mapping[str, float] | None = None,
    session: Session | Mapping[str, float | None] | None = None,
    inside: str | None = None,
    **unknown: Never,
) -> Command:
    """A command job from the keys of the job YAML, as models or mappings.

    Keys of ``resources``, ``limits`` and ``queue_settings`` can be given directly. Relative paths
    start at the current folder at submission. Raises SpecError.
    """
    keys = {**locals(), **unknown}
    del keys["unknown"]
    return _job({word: value for word, value in keys.items() if value is not None})


def _job(keys: Document) -> Command:
    """The job of ``command``'s keywords; direct ones override those of their section."""
    short = {word: keys.pop(word) for word in _SECTIONS if word in keys}
    for word, value in short.items():
        section = _SECTIONS[word]
        keys[section] = {**_plain(keys.get(section, {})), word: value}
    return Command.parse({word: as_in_a_file(word, _dicts(value)) for word, value in keys.items()})


def load_job(source: str | os.PathLike[str] | IO[str]) -> Any:
    """A ``Command``, a ``SweepJob`` or a ``PipelineJob`` from a YAML file, an open file or the text
    of ``to_yaml`` (several lines).

    Relative paths start at the file's folder at submission. Raises SpecError with key, line and
    hint.
    """
    if isinstance(source, str | os.PathLike):
        if isinstance(source, str) and "\n" in source and not os.path.exists(source):
            return _in_python(load.loads(source))
        return _in_python(load.load(Path(source)))
    name = getattr(source, "name", None)
    job = load.loads(source.read(), file=name if isinstance(name, str) else None)
    return _in_python(job.based(Path(name).parent) if isinstance(name, str) else job)


def _in_python(job: AnyJob) -> AnyJob:
    if not isinstance(job, CommandJob):
        return job
    made = Command.parse(job.to_dict())
    return made if job.base is None else made.based(job.base)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    return value


def _dicts(value: Any) -> Any:
    """Convert all mappings to dicts for the models."""
    if isinstance(value, Mapping):
        return {name: _dicts(each) for name, each in value.items()}
    return value
