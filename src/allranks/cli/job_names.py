"""Jobs on command lines: a name, the beginning of one, or `-` and `@last` for the newest.

An option or argument of type JobReference names a job. `main` replaces it by the full name before
it runs the command.
"""

from __future__ import annotations

import argparse

_NEWEST = {"terminal": "the newest job of this terminal", "user": "your newest job"}


class JobReference(str):
    """A job as the user named it, not resolved yet."""


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


def resolve(options: argparse.Namespace) -> list[str]:
    """Replace references by full names. Returns notes on which jobs `-` is. Raises NotFound and
    Conflict."""
    from allranks.sdk.jobs.names import resolved  # lazy: not needed by `--help`

    notes: list[str] = []

    def name_of(value: object) -> object:
        if not isinstance(value, JobReference):
            return value
        job = resolved(value)
        if newest_of := job["newest_of"]:
            notes.append(f"{value} is {job['name']}, {_NEWEST[newest_of]}")
        return job["name"]

    for key, value in vars(options).items():
        several = isinstance(value, list)
        setattr(options, key, [*map(name_of, value)] if several else name_of(value))
    return notes
