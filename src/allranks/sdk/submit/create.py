"""Submit jobs made in Python, one or several at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from allranks.api import routes
from allranks.errors import Problem, SpecError, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.names import no_job
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.script_notes import script_notes
from allranks.sdk.submit.send import Snapshots, send
from allranks.sdk.submit.shell import Shell
from allranks.sdk.submit.shell_variables import with_shell_variables
from allranks.spec.any_job import AnyJob
from allranks.spec.job import CommandJob

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import CreatedJob

    # A submission, its snapshots, and the folders of outputs that the server does not see.
    Prepared = tuple[Document, Snapshots, dict[str, str]]


class Words(TypedDict, total=False):
    """The keywords of ``Jobs.create_or_update``."""

    base: str | Path | None
    experiment_name: str | None
    compute: str | None
    description: str | None
    tags: Mapping[str, str] | None
    allow_large_code: bool
    allow_large_data: bool


# Seconds in which the server must have accepted a list.
_PATIENCE = 600.0


def create(
    job: object, base: str | Path | None, words: Mapping[str, Any], allow_large: bool, data: bool
) -> CreatedJob:
    """Submit a job, with keys replaced by ``words`` that are not None; ``data``: also large data is
    uploaded. Returns the server's job. Raises AllranksError."""
    submission, snapshots, folders = _prepared(job, base, words, allow_large, Shell())
    with find_server.connect() as client:
        made: CreatedJob = send(client, submission, snapshots, allow_large_data=data)
        made["notes"] += [*script_notes(client, submission, made), *_left(made, folders)]
        return made


def check(job: object, base: str | Path | None) -> list[str]:
    """Check a job as submitting it would. Returns notes. Raises AllranksError."""
    submission, _, _ = _prepared(job, base, {}, True, Shell())
    return find_server.ask(routes.check_job, body=submission)


def create_all(
    jobs: Sequence[object],
    base: str | Path | None,
    words: Mapping[str, Any],
    allow_large: bool,
    data: bool,
) -> list[CreatedJob]:
    """Submit command jobs: all, or none. Raises like ``create``."""
    for number, job in enumerate(jobs):
        if not isinstance(job, CommandJob):
            what = type(job).__name__ if isinstance(job, AnyJob) else "no job"
            hint = "submit sweeps and pipelines one by one"
            where = f"jobs.{number}"
            raise UsageError(f"a list has command jobs; this is {what}", where=where, hint=hint)
    prepared = _all_prepared(jobs, base, words, allow_large)
    snapshots = {each.digest: each for _, several, _ in prepared for each in several}
    submissions = [submission for submission, _, _ in prepared]
    with find_server.connect() as client:
        made: list[CreatedJob] = send(
            client,
            submissions,
            [*snapshots.values()],
            to=routes.create_jobs.at(),
            timeout=_PATIENCE,
            allow_large_data=data,
        )
        for (submission, _, folders), job in zip(prepared, made, strict=True):
            job["notes"] += [*script_notes(client, submission, job), *_left(job, folders)]
        return made


def _all_prepared(
    jobs: Sequence[object], base: str | Path | None, words: Mapping[str, Any], allow_large: bool
) -> list[Prepared]:
    """Raises SpecError with the problems of every job, placed at `jobs.NUMBER`."""
    shell = Shell()
    prepared: list[Prepared] = []
    problems, names = list[Problem](), set[str]()
    for number, job in enumerate(jobs):
        try:
            made = _prepared(job, base, words, allow_large, shell)
        except SpecError as error:
            problems += [problem.below(f"jobs.{number}") for problem in error.problems]
            continue
        name = made[0]["spec"]["name"]
        if name in names:
            where, hint = f"jobs.{number}.name", "leave it out to have one generated"
            problems.append(Problem(f"an earlier job is named {name!r}", where, hint=hint))
        prepared.append(made)
        names.add(name)
    if problems:
        raise SpecError(problems)
    return prepared


def _prepared(
    job: object,
    base: str | Path | None,
    words: Mapping[str, Any],
    allow_large: bool,
    shell: Shell,
) -> Prepared:
    if not isinstance(job, AnyJob):
        raise no_job(job)
    changes = {name: value for name, value in words.items() if value is not None}
    # Checked again as a whole, because values in its mappings may have changed.
    spec = with_shell_variables(type(job).parse({**dict(job), **changes}).to_dict())
    start, folders = Path(base or job.base or ".").absolute(), dict[str, str]()
    if spec.get("outputs"):
        from allranks.sdk.upload.outputs import apart  # lazy: few jobs have any

        spec, folders = apart(spec, start)
    return *prepare(spec, start, shell=shell, allow_large=allow_large), folders


def _left(job: CreatedJob, folders: Mapping[str, str]) -> list[str]:
    if not folders:
        return []
    from allranks.sdk.upload.outputs import notes  # lazy: as above

    return notes(job["name"], folders)
