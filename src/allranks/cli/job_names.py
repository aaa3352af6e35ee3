"""Jobs on command lines: a name, the beginning of one, or `-` and `@last` for the newest.

An option or argument of type JobReference names a job. `main` replaces it by the full name before
it runs the command.
"""

from __future__ import annotations

import argparse


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


def resolve(options: argparse.Namespace) -> None:
    """Replace references by full names. Raises NotFound and Conflict."""
    from allranks.sdk.jobs.names import job_name  # lazy: not needed by `--help`

    for key, value in vars(options).items():
        if isinstance(value, JobReference):
            setattr(options, key, job_name(value))
        elif isinstance(value, list):
            names = [job_name(each) if isinstance(each, JobReference) else each for each in value]
            setattr(options, key, names)
