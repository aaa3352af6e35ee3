"""Where the server keeps a job: its name is one word of a path, or no name of a job at all."""

from __future__ import annotations

import re
from urllib.parse import quote

from allranks.errors import NotFound

# As `spec` allows them; checked here too, because a slash in one would lead elsewhere.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def job_path(name: str, rest: str = "") -> str:
    """The address of a job, with ``rest`` behind it; raises NotFound for what cannot be one."""
    if not _NAME.fullmatch(name):
        raise NotFound(
            f"there is no job named {name!r}", hint="`allranks job list` shows those there are"
        )
    return f"/api/v1/jobs/{name}{rest}"


def file_path(name: str, path: str) -> str:
    """The address of a file of a job's record."""
    return job_path(name, "/files/" + quote(path, errors="surrogateescape"))


def checksum_path(name: str, path: str, size: int) -> str:
    """The address of the checksum of its first ``size`` bytes."""
    quoted = quote(path, errors="surrogateescape")
    return job_path(name, f"/checksums/{quoted}?size={size}")
