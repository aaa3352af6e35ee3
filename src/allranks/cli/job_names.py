"""Jobs on command lines: a name, the beginning of one, or `-` and `@last` for the newest.

An option or argument of type JobReference names a job. `main` replaces it by the full name before
it runs the command.
"""

from __future__ import annotations

import argparse

from allranks.cli.output import show
from allranks.errors import UsageError

_NEWEST = {"terminal": "the newest job of this terminal", "user": "your newest job"}


class JobReference(str):
    """A job as the user named it, not resolved yet."""


class WholeJobName(JobReference):
    """A job that a command destroys, ends or moves: only its whole name will do. `-` and `@last`
    do on a terminal, or with --yes."""


class OneOfSeveral(WholeJobName):
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


def whole_job_argument(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    """As ``job_argument``, for a command that destroys, ends or moves the job. Adds --yes."""
    dest = "name" if nargs is None else "names"
    whole = "a job: its whole name, or - for the newest"
    parser.add_argument(dest, nargs=nargs, metavar="NAME", type=WholeJobName, help=whole)
    show.yes_option(parser.add_argument)


def full_name(reference: JobReference, *, yes: bool = False) -> tuple[str, str]:
    """The full name, and a note on which job `-` is. Raises NotFound and Conflict."""
    from allranks.sdk.jobs.names import LAST, resolved  # lazy: not needed by `--help`

    is_whole = isinstance(reference, WholeJobName)
    job = resolved(reference, whole=is_whole)
    if is_whole and reference in LAST and not (yes or show.can_ask()):
        hint = "name it, or add --yes"
        raise UsageError(f"without a terminal {reference} is a guess: {job['name']}", hint=hint)
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
        name, note = full_name(value, yes=getattr(options, "yes", False))
        notes.extend([note] if note else [])
        return name

    for key, value in vars(options).items():
        several = isinstance(value, list)
        setattr(options, key, [*map(name_of, value)] if several else name_of(value))
    return notes
