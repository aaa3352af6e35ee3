"""References to files of another job: ``azureml://jobs/J/outputs/O/paths/P``."""

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
    """An output of a job and a path within it; empty for the whole output."""

    job: str
    output: str
    path: str = ""


def output_uri(job: str, output: str) -> str:
    """The address of an output of a job."""
    return f"{_PREFIX}{job}/outputs/{output}/paths/"


def output_of(path: str, where: str) -> OutputOf | None:
    """The job output that an input's path refers to, or None for other paths.

    Raises SpecError if it is malformed or leads outside of the output.
    """
    if not path.startswith(_PREFIX):
        return None
    matched = _URI.fullmatch(path)
    steps = [step for step in ((matched and matched["path"]) or "").split("/") if step != "."]
    if matched is None or ".." in steps:
        hint = "write `azureml://jobs/JOB/outputs/OUTPUT/paths/PATH`, PATH without `..`"
        raise SpecError(Problem(f"{path!r} is not the address of a job's output", where, hint=hint))
    return OutputOf(matched["job"], matched["output"], "/".join(step for step in steps if step))


# Azure ML's name for the files of a job beside its named outputs.
ARTIFACTS = "artifacts"


def left_at(job: str, path: str) -> OutputOf:
    """Resolve a path as shown by `job download`: `outputs/…` (its own folder), `artifacts/…`,
    `named-outputs/O/…`, or `outputs.O/…` for the named output `O`. Without an ``output`` it is in
    the artifacts. Raises SpecError if it leads outside."""
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if path.startswith("/") or ".." in steps or not steps:
        hint = "as shown by `allranks job files`: outputs/model.pt, or outputs.NAME/model.pt"
        raise SpecError(Problem(f"{path!r} is not a path of a job's file", "path", hint=hint))
    first, *rest = steps
    if first == "named-outputs" and rest:
        return OutputOf(job, rest[0], "/".join(rest[1:]))
    if (name := first.removeprefix("outputs.")) not in ("", first):
        return OutputOf(job, name, "/".join(rest))
    return OutputOf(job, "", "/".join(rest if first == ARTIFACTS else steps))


def address_of(of: OutputOf) -> str:
    """The address of a job's file, as listed by `job files`: `outputs/model.pt`,
    `named-outputs/NAME/model.pt`; `artifacts` for all but the named outputs."""
    if of.output:
        return f"named-outputs/{of.output}/{of.path}".rstrip("/")
    # A folder of the artifacts may have the name of a named output.
    plain = bool(of.path) and left_at(of.job, of.path) == of
    return of.path if plain else f"{ARTIFACTS}/{of.path}".rstrip("/")


def of_run(path: str) -> OutputOf | None:
    """The file that MLflow's ``runs:/J/P`` refers to, or None for other paths. Raises SpecError."""
    run, _, rest = path.removeprefix("runs:").lstrip("/").partition("/")
    return left_at(run, rest) if path.startswith("runs:") else None


def left_by(path: str, where: str) -> OutputOf | None:
    """The job's file for an address ``azureml://jobs/J/outputs/O/paths/P`` or ``runs:/J/P``; None
    for other paths. Raises SpecError if it is malformed."""
    return output_of(path, where) or of_run(path)


class Asset(NamedTuple):
    """A reference to a named asset, by ``version`` or by ``label``."""

    name: str
    version: str = ""
    label: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.version}" if self.version else f"{self.name}@{self.label}"


_ASSET = re.compile(r"(?P<name>[^:@/\s]+)(:(?P<version>[^:@/\s]+)|@(?P<label>[^:@/\s]+))?")
# Azure's long addresses, of a registry or a workspace.
_LONG = re.compile(
    r"(azureml:)?/.+/(?P<name>[^/:@\s]+)/(versions/(?P<version>[^/\s]+)|labels/(?P<label>[^/\s]+))"
)


def asset_of(reference: str, where: str) -> Asset:
    """Parse `NAME:VERSION`, `NAME@LABEL` or `NAME` (for `NAME@latest`), with or without `azureml:`.

    Raises SpecError for anything else.
    """
    match = _LONG.fullmatch(reference) or _ASSET.fullmatch(reference.removeprefix("azureml:"))
    if match is None:
        hint = "write `azureml:NAME:VERSION` or `azureml:NAME@latest`"
        raise SpecError(Problem(f"{reference!r} is not a reference to a version", where, hint=hint))
    version = match["version"] or ""
    return Asset(match["name"], version, "" if version else match["label"] or "latest")
