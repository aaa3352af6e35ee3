"""Jobs on command lines: by name, by the beginning of one, or `-` and `@last` for the newest.

An option or argument that names jobs has the type JobReference. `main` puts the whole names in
their place before it runs the command, so that no command has to.
"""

from __future__ import annotations

import argparse

WHICH = "a job: its name, the beginning of it, or - for the newest"


class JobReference(str):
    """A job as a person names it, not looked up yet."""


def job_argument(
    parser: argparse.ArgumentParser,
    *,
    nargs: str | None = None,
    metavar: str = "NAME",
    help: str = WHICH,
) -> None:
    """Add ``name``; with ``nargs`` it is ``names``."""
    dest = "name" if nargs is None else "names"
    parser.add_argument(dest, nargs=nargs, metavar=metavar, type=JobReference, help=help)


def resolve(options: argparse.Namespace) -> None:
    """Put whole names in the place of references. Raises NotFound and Conflict."""
    from allranks.sdk.jobs.names import job_name  # lazy: not needed by `--help`

    for key, value in vars(options).items():
        if isinstance(value, JobReference):
            setattr(options, key, job_name(value))
        elif isinstance(value, list):
            names = [job_name(each) if isinstance(each, JobReference) else each for each in value]
            setattr(options, key, names)
