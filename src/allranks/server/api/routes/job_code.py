"""Routes for the code of jobs: the files of a snapshot, read from its archives."""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.responses import Response

from allranks.api.jobs import CodeFile
from allranks.errors import Forbidden, NotFound
from allranks.masking import holds_secrets
from allranks.server.api.routes.job_files import path_of
from allranks.server.dependencies import ServicesDep
from allranks.store.files.code_listing import code_entries

# The most bytes of a file that are sent.
_MOST = 16 << 20


def files(name: str, services: ServicesDep) -> list[CodeFile]:
    """The files of the job's code with path and size, and links with their target; none for a job
    without code. Raises NotFound if the code was deleted."""
    return [
        {
            "path": os.fsencode(entry.name).decode(errors="replace"),
            "size": entry.size,
            "link": os.fsencode(entry.target).decode(errors="replace") or None,
        }
        for entry in code_entries(services.blobs, services.records.get(name).plan.task.code)
        if entry.kind in ("file", "link")
    ]


def file(request: Request, name: str, services: ServicesDep) -> Response:
    """One file, at most its first 16 MiB. Raises Forbidden for one that is named as secrets are."""
    path = path_of(request)
    if holds_secrets(path):
        hint = "it is in the code that the job gets; pass secrets as variables: --env NAME"
        raise Forbidden("a file that is named as secrets are is not shown", where=path, hint=hint)
    for entry in code_entries(services.blobs, services.records.get(name).plan.task.code):
        if entry.name == path and entry.kind == "file":
            most = min(entry.stored, _MOST)
            content = entry.read(most) if most else b""
            return Response(content, media_type="application/octet-stream")
    hint = f"GET /api/v1/jobs/{name}/code lists its files"
    raise NotFound(f"the code of {name} has no file {path[:255]!r}", hint=hint)
