"""Where inputs lie that are outputs of other jobs: ``azureml://jobs/J/outputs/O/paths/P``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from allranks.errors import NotFound, Problem, SpecError
from allranks.plan.plan import OutputTask
from allranks.settings import Home
from allranks.spec.job import CommandJob
from allranks.spec.references import OutputOf, output_of
from allranks.spec.values import Input
from allranks.states import TERMINAL, JobStatus
from allranks.store.records import JobRow


def places(spec: CommandJob, find: Callable[[str], JobRow]) -> Mapping[str, str]:
    """The path of each input that is another job's output; ``find`` raises NotFound.

    Raises SpecError for every one whose job, output or file is not there, or not ready.
    """
    found, wrong = {}, []
    for name, wanted in _wanted(spec):
        try:
            found[name] = _place(wanted, find)
        except SpecError as error:
            wrong += [each._replace(where=f"inputs.{name}.path") for each in error.problems]
    if wrong:
        raise SpecError(wrong)
    return found


def unseen(spec: CommandJob, home: Home) -> Mapping[str, str]:
    """Where such inputs would lie in ``home`` by default: for a plan that nobody will start."""
    return {
        name: str(Path(home.jobs, wanted.job, "named-outputs", wanted.output, wanted.path))
        for name, wanted in _wanted(spec)
    }


def _wanted(spec: CommandJob) -> Iterator[tuple[str, OutputOf]]:
    for name, value in spec.inputs.items():
        if isinstance(value, Input) and (of := output_of(value.path, f"inputs.{name}.path")):
            yield name, of


def _place(wanted: OutputOf, find: Callable[[str], JobRow]) -> str:
    try:
        row = find(wanted.job)
    except NotFound as error:
        raise SpecError(Problem(error.message, hint=error.hint)) from None
    status, task = row.record.status, row.plan.task
    output = next((each for each in task.outputs if each.name == wanted.output), None)
    if output is None:
        has = ", ".join(f"`{each.name}`" for each in task.outputs) or "none"
        message = f"the job {row.name!r} has no output {wanted.output!r}"
        raise SpecError(Problem(message, hint=f"its outputs: {has}"))
    if status is not JobStatus.COMPLETED:
        raise SpecError(_not_ready(row.name, status))
    path = _within(output, wanted.path)
    if not path.exists():
        what = f"no {wanted.path!r}" if wanted.path else "nothing"
        message = f"the job {row.name!r} left {what} in its output {output.name!r}"
        look = f"allranks job download {row.name} --output-name {output.name}"
        raise SpecError(Problem(message, hint=f"see what it left: {look}"))
    return str(path)


def _not_ready(name: str, status: JobStatus) -> Problem:
    ended = f"run it again: allranks job restart {name}"
    hint = ended if status in TERMINAL else f"wait for it: allranks job wait {name}"
    return Problem(f"the job {name!r} is {status}: its outputs are not to be relied on", hint=hint)


def _within(output: OutputTask, path: str) -> Path:
    """The output itself, or what lies at ``path`` in it; one that is a file has its own name."""
    whole = Path(output.path)
    return (whole.parent if output.is_file else whole) / path if path else whole
