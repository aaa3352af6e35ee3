"""Which job a person means by the beginning of a name, `-` or `@last`."""

from __future__ import annotations

from urllib.parse import urlencode

from allranks.errors import UsageError
from allranks.sdk.connection import find_server


def job_name(reference: object) -> str:
    """The whole name of the job; an exact name wins. Raises NotFound with the nearest names, and
    Conflict where the names of several jobs begin so."""
    if not isinstance(reference, str):
        hint = "what `create_or_update` gives has a `name`; `list` gives all of them"
        kind = type(reference).__name__
        raise UsageError(f"the name of a job is text, not {kind}", hint=hint)
    text = reference.encode(errors="replace").decode()
    return str(find_server.ask("GET", f"/api/v1/resolve?{urlencode({'job': text})}")["name"])
