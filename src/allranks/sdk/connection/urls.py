"""Where the server keeps things: a job's name is one word of a path, or no name of a job at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from allranks.errors import NotFound, UsageError

# As `spec` allows them; checked here too, because a slash in one would lead elsewhere.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def job_path(name: str, rest: str = "") -> str:
    """The address of a job, with ``rest`` behind it; raises NotFound for what cannot be one."""
    if not _NAME.fullmatch(_text(name, "job")):
        raise NotFound(
            f"there is no job named {name!r}", hint="`allranks job list` shows those there are"
        )
    return f"/api/v1/jobs/{name}{rest}"


def asset_path(kind: str, reference: str, rest: str = "") -> str:
    """The address of a version of `data`, `environments` or `models`, or of what has but a name
    (`computes`, `datastores`), with ``rest`` behind it; raises NotFound for what cannot be one."""
    if not _text(reference, kind.removesuffix("s")).strip(". ") or "/" in reference:
        raise NotFound(
            f"nothing is named {reference!r}", hint=f"`allranks {kind.removesuffix('s')} list`"
        )
    return f"/api/v1/{kind}/{quote(reference, safe='')}{rest}"


def state_path(name: str, rest: str = "") -> str:
    """The address of a state, with ``rest`` behind it; raises NotFound for what cannot be one."""
    if not _NAME.fullmatch(_text(name, "state")):
        hint = "`allranks state list` shows those with a name, with --own those of jobs"
        raise NotFound(f"there is no state named {name!r}", hint=hint)
    return f"/api/v1/states/{name}{rest}"


def _text(name: object, what: str) -> str:
    """The name, which Python programs may forget to look up. Raises UsageError."""
    if isinstance(name, str):
        return name
    hint = "what `create_or_update` gives has a `name`; `list` gives all of them"
    raise UsageError(f"the name of a {what} is text, not {type(name).__name__}", hint=hint)


def versions_path(kind: str, name: str | None) -> str:
    """The address of all versions of the one of that name, or of the newest of each."""
    return f"/api/v1/{kind}" + (f"?{urlencode({'name': name})}" if name else "")


def labelled(address: str, labels: Sequence[str]) -> str:
    """An address to which what is made is sent, with labels for it."""
    return address + (f"?{urlencode({'label': labels}, doseq=True)}" if labels else "")


def version_path(kind: str, name: str, version: str | None, label: str) -> str:
    """The address of a version, or without one of what has the label."""
    return asset_path(kind, f"{name}:{version}" if version else f"{name}@{label}")


def file_path(place: str, path: str) -> str:
    """The address of a file of a job's record, or of a model; ``place`` is the address of that."""
    return f"{place}/files/" + quote(path, errors="surrogateescape")


def checksum_path(place: str, path: str, size: int) -> str:
    """The address of the checksum of its first ``size`` bytes."""
    return f"{place}/checksums/{quote(path, errors='surrogateescape')}?size={size}"
