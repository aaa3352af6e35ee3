"""URLs of the server's API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from allranks.errors import NotFound, UsageError

# Valid names, as in `spec`. Checked here because a slash would change the URL.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def job_path(name: str, rest: str = "") -> str:
    """The URL of a job, followed by ``rest``. Raises NotFound for an invalid name."""
    if not _NAME.fullmatch(_text(name, "job")):
        raise NotFound(f"job {name!r} not found", hint="`allranks job list` shows all jobs")
    return f"/api/v1/jobs/{name}{rest}"


def asset_path(kind: str, reference: str, rest: str = "") -> str:
    """The address of a version of `data`, `environments` or `models`, or of `computes` and
    `datastores`, followed by ``rest``. Raises NotFound for an invalid name."""
    if not _text(reference, kind.removesuffix("s")).strip(". ") or "/" in reference:
        raise NotFound(f"{reference!r} not found", hint=f"`allranks {kind.removesuffix('s')} list`")
    return f"/api/v1/{kind}/{quote(reference, safe='')}{rest}"


def state_path(name: str, rest: str = "") -> str:
    """The URL of a state, followed by ``rest``. Raises NotFound for an invalid name."""
    if not _NAME.fullmatch(_text(name, "state")):
        hint = "`allranks state list` shows named states, with --own also those of jobs"
        raise NotFound(f"state {name!r} not found", hint=hint)
    return f"/api/v1/states/{name}{rest}"


def _text(name: object, what: str) -> str:
    """Check that the name is text. Raises UsageError."""
    if isinstance(name, str):
        return name
    hint = "use the `name` of what `create_or_update` returned; `list` returns all"
    raise UsageError(f"the name of a {what} must be a str, not {type(name).__name__}", hint=hint)


def versions_path(kind: str, name: str | None) -> str:
    """The URL of all versions of an asset, or of the newest version of every asset."""
    return f"/api/v1/{kind}" + (f"?{urlencode({'name': name})}" if name else "")


def labelled(address: str, labels: Sequence[str]) -> str:
    """The URL to create a version with labels."""
    return address + (f"?{urlencode({'label': labels}, doseq=True)}" if labels else "")


def version_path(kind: str, name: str, version: str | None, label: str) -> str:
    """The URL of a version, by number or label."""
    return asset_path(kind, f"{name}:{version}" if version else f"{name}@{label}")


def file_path(place: str, path: str) -> str:
    """The URL of a file of the job or model at ``place``."""
    return f"{place}/files/" + quote(path, errors="surrogateescape")


def checksum_path(place: str, path: str, size: int) -> str:
    """The URL of the checksum of its first ``size`` bytes."""
    return f"{place}/checksums/{quote(path, errors='surrogateescape')}?size={size}"
