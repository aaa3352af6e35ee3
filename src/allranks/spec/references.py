"""``azureml://jobs/J/outputs/O/paths/P``: what another job left, named in an input's path."""

from __future__ import annotations

import re
from typing import NamedTuple

from allranks.errors import Problem, SpecError

_PREFIX = "azureml://jobs/"
_URI = re.compile(
    r"azureml://jobs/(?P<job>[^/]+)/outputs/(?P<output>[^/]+)(/paths(/(?P<path>.*))?)?/?",
    re.DOTALL,
)


class OutputOf(NamedTuple):
    """An output of a job, and a path within it (empty: the whole of it)."""

    job: str
    output: str
    path: str = ""


def output_uri(job: str, output: str) -> str:
    """The address of an output of a job."""
    return f"{_PREFIX}{job}/outputs/{output}/paths/"


def output_of(path: str, where: str) -> OutputOf | None:
    """What an input's path refers to, or None where it is no address of a job's output.

    Raises SpecError for one that cannot be read, or that would lead out of the output.
    """
    if not path.startswith(_PREFIX):
        return None
    matched = _URI.fullmatch(path)
    steps = [step for step in ((matched and matched["path"]) or "").split("/") if step != "."]
    if matched is None or ".." in steps:
        hint = "write `azureml://jobs/JOB/outputs/OUTPUT/paths/PATH`, PATH without `..`"
        raise SpecError(Problem(f"{path!r} is not the address of a job's output", where, hint=hint))
    return OutputOf(matched["job"], matched["output"], "/".join(step for step in steps if step))
