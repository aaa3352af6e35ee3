"""Resolve a job by the beginning of its name, `-` or `@last`: the newest of this terminal, or else
the user's."""

from __future__ import annotations

from os import PathLike
from typing import TypedDict

from allranks.api import routes
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs import terminal

LAST = ("-", "@last")


class Resolved(TypedDict):
    """``newest_of``: "terminal" or "user", if the newest job was asked for."""

    name: str
    newest_of: str


def job_name(reference: object) -> str:
    """The full name of the job; see ``resolved``."""
    return resolved(reference)["name"]


def resolved(reference: object, *, whole: bool = False) -> Resolved:
    """The job that is meant; an exact match wins, and with ``whole`` nothing else does. Raises
    NotFound with similar names, and Conflict if several names match."""
    if not isinstance(reference, str):
        hint = "use the `name` of what `create_or_update` returned; `list` returns all"
        kind = type(reference).__name__
        raise UsageError(f"the name of a job must be a str, not {kind}", hint=hint)
    text = reference.encode(errors="replace").decode()
    mine = terminal.submitted() if text in LAST else []
    return find_server.ask(routes.resolve_job, job=text, mine=mine, whole=whole)


def no_job(argument: object) -> UsageError:
    """The error of an argument that is not a job, or why it is none."""
    if isinstance(problem := getattr(argument, "problem", None), UsageError):
        return problem
    if isinstance(argument, str | PathLike):
        hint = f"read a file with load_job({str(argument)!r})"
        return UsageError(f"{str(argument)!r} is a str, not a job", hint=hint)
    hint = "create one with `command(...)` or read one with load_job(FILE)"
    return UsageError(f"the argument is a {type(argument).__name__}, not a job", hint=hint)
