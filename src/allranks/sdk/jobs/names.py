"""Resolve a job by the beginning of its name, `-` or `@last`."""

from __future__ import annotations

from os import PathLike
from urllib.parse import urlencode

from allranks.errors import UsageError
from allranks.sdk.connection import find_server


def job_name(reference: object) -> str:
    """The full name of the job; an exact match wins. Raises NotFound with similar names, and
    Conflict if several names match."""
    if not isinstance(reference, str):
        hint = "use the `name` of what `create_or_update` returned; `list` returns all"
        kind = type(reference).__name__
        raise UsageError(f"the name of a job must be a str, not {kind}", hint=hint)
    text = reference.encode(errors="replace").decode()
    return str(find_server.ask("GET", f"/api/v1/resolve?{urlencode({'job': text})}")["name"])


def no_job(given: object) -> UsageError:
    """The error of an argument that is not a job."""
    if isinstance(given, str | PathLike):
        hint = f"read a file with load_job({str(given)!r})"
        return UsageError(f"{str(given)!r} is a str, not a job", hint=hint)
    hint = "create one with `command(...)` or read one with load_job(FILE)"
    return UsageError(f"the argument is a {type(given).__name__}, not a job", hint=hint)
