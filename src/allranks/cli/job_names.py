"""Jobs on command lines: a name, the beginning of one, or `-` and `@last` for the newest.

An option or argument of type JobReference names a job. `main` replaces it by the full name before
it runs the command.
"""

from __future__ import annotations

import argparse

_NEWEST = {"terminal": "the newest job of this terminal", "user": "your newest job"}


class JobReference(str):
    """A job as the user named it, not resolved yet."""


class OneOfSeveral(JobReference):
    """The command itself resolves it with ``full_name``, to go on if there is no such job."""


def job_argument(
    parser: argparse.ArgumentParser,
    *,
    nargs: str | None = None,
    metavar: str = "NAME",
    help: str = "a job: its name, the beginning of it, or - for the newest",
) -> None:
    """Add the argument ``name``, or ``names`` with ``nargs``."""
    dest = "name" if nargs is None else "names"
    parser.add_argument(dest, nargs=nargs, metavar=metavar, type=JobReference, help=help)


def full_name(reference: JobReference) -> tuple[str, str]:
    """The full name, and a note on which job `-` is. Raises NotFound and Conflict."""
    from allranks.sdk.jobs.names import resolved  # lazy: not needed by `--help`

    job = resolved(reference)
    newest_of = job["newest_of"]
    note = f"{reference} is {job['name']}, {_NEWEST[newest_of]}" if newest_of else ""
    return job["name"], note


def resolve(options: argparse.Namespace) -> list[str]:
    """Replace references by full names. Returns notes on which jobs `-` is. Raises NotFound and
    Conflict."""
    notes: list[str] = []

    def name_of(value: object) -> object:
        if not isinstance(value, JobReference) or isinstance(value, OneOfSeveral):
            return value
        name, note = full_name(value)
        notes.extend([note] if note else [])
        return name

    for key, value in vars(options).items():
        several = isinstance(value, list)
        setattr(options, key, [*map(name_of, value)] if several else name_of(value))
    return notes
