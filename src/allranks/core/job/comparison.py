"""What differs between several jobs, section by section. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allranks.core.job.command_flags import command_flags
from allranks.core.job.differences import Side, packages

# In the order in which they are shown.
SECTIONS = ("result", "metrics", "parameters", "code", "data", "environment")
# More files than a person reads.
_MOST = 20
_PACKAGE = "package "
# Runs of one configuration differ in these.
_SEED = re.compile(r"seed$|random_?state$", re.IGNORECASE)
# Where a job runs is no part of its configuration.
_NO_CONFIGURATION = ("compute",)


class Facts(NamedTuple):
    """What of a job is compared beside its ``side``: how it ended, the last values of its metrics,
    the values of its inputs (``literals``), the parameters that its script ``logged``, and which
    file of its code differs from the first job's (``files``: `changed`, `new`, `gone`)."""

    side: Side
    result: Mapping[str, str] = {}
    metrics: Mapping[str, float | str | None] = {}
    literals: frozenset[str] = frozenset()
    files: Mapping[str, str] = {}
    commit: str = ""
    logged: Mapping[str, str] = {}


class Difference(NamedTuple):
    """``values`` of the jobs in their order; None for a job that has no such thing."""

    section: str
    name: str
    values: tuple[float | str | None, ...]


def differences(jobs: Sequence[Facts]) -> list[Difference]:
    """All that is not the same in every job, by section."""
    hidden = frozenset[str]().union(*(job.side.hidden for job in jobs))
    several = [_facts(job) | _variables(job, hidden, jobs) | _files(job, jobs) for job in jobs]
    keys = dict.fromkeys(key for values in several for key in values)
    rows = [
        Difference(section, name, tuple(values.get((section, name)) for values in several))
        for section, name in keys
    ]
    rows = [row for row in rows if _differs(row, jobs)]
    return sorted(rows, key=lambda row: SECTIONS.index(row.section))


def _differs(row: Difference, jobs: Sequence[Facts]) -> bool:
    """Whether jobs have different values. Packages are compared where the record has them: that of
    a job that ran with the submitter's own Python, where this is, has none."""
    values = [
        value
        for value, job in zip(row.values, jobs, strict=True)
        if job.side.requirements is not None
        or row.section != "environment"
        or not row.name.startswith(_PACKAGE)
    ]
    return len(set(values)) > 1


def configurations(jobs: Sequence[Facts]) -> list[int]:
    """The number of each job's configuration, from 0: those of one have the same parameters and
    variables but for seeds."""
    keys = [
        (
            *(entry for entry in _parameters(job).items() if entry[0] not in _NO_CONFIGURATION),
            *job.side.variables.items(),
        )
        for job in jobs
    ]
    kept = [frozenset(entry for entry in key if not _SEED.search(entry[0])) for key in keys]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(kept))}
    return [numbers[key] for key in kept]


_Values = dict[tuple[str, str], float | str | None]


def _parameters(job: Facts) -> dict[str, str]:
    """Those of the script, from wherever they come, and those of the job itself."""
    side = job.side
    flags = command_flags(side.command)
    own = {
        "command": flags.rest,
        "distribution": side.distribution,
        "nodes": str(side.nodes),
        "processes per node": str(side.procs),
        "GPUs per node": str(side.gpus),
        "compute": side.compute,
    }
    literals = {name: text for name, text in side.inputs.items() if name in job.literals}
    scripts = {**flags.parameters, **job.logged, **literals, **side.parameters}
    return {(f"--{name}" if name in own else name): text for name, text in scripts.items()} | own


def _facts(job: Facts) -> _Values:
    side = job.side
    sections = {
        "result": job.result,
        "metrics": job.metrics,
        "parameters": _parameters(job),
        "code": {"snapshot": (side.code or "")[:12] or None, "commit": job.commit[:12] or None},
        "data": {name: at for name, at in side.inputs.items() if name not in job.literals},
        "environment": {
            "environment": side.environment,
            **{f"{_PACKAGE}{name}": line for name, line in packages(side).items()},
        },
    }
    return {
        (section, name): text for section, part in sections.items() for name, text in part.items()
    }


def _variables(job: Facts, hidden: frozenset[str], jobs: Sequence[Facts]) -> _Values:
    """Its variables; of one that is hidden only which jobs have the same value."""
    variables: _Values = {}
    for name, value in job.side.variables.items():
        if name in hidden:
            others = list(dict.fromkeys(other.side.variables.get(name) for other in jobs))
            value = f"hidden value {others.index(value) + 1}"
        variables["environment", f"variable {name}"] = value
    return variables


def _files(job: Facts, jobs: Sequence[Facts]) -> _Values:
    """The files of its code that differ in some job: the same, changed, new or gone."""
    names = sorted({name for other in jobs for name in other.files})
    files: _Values = {
        ("code", f"file {name}"): job.files.get(name, "as in the first job")
        for name in names[:_MOST]
    }
    if len(names) > _MOST:
        files["code", "more files"] = str(len(job.files))
    return files
