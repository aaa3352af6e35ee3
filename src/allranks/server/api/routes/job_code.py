"""Routes for the code of jobs: the files of a snapshot, read from its archives."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from allranks.api.jobs import CodeFile
from allranks.errors import NotFound
from allranks.server.api.routes.job_files import path_of
from allranks.server.dependencies import Services, ServicesDep

# The most bytes of a file that are sent.
_MOST = 16 << 20


def files(name: str, services: ServicesDep) -> list[CodeFile]:
    """The files of the job's code with path and size, and links with their target; none for a job
    without code. Raises NotFound if the code was deleted."""
    return [
        {
            "path": member.name,
            "size": member.size,
            "link": member.linkname if member.issym() else None,
        }
        for member, _ in _members(name, services)
        if member.isfile() or member.issym()
    ]


def file(request: Request, name: str, services: ServicesDep) -> Response:
    """One file, at most its first 16 MiB."""
    path = path_of(request)
    for member, archive in _members(name, services):
        if member.name == path and (content := archive.extractfile(member)) is not None:
            return Response(content.read(_MOST), media_type="application/octet-stream")
    hint = f"GET /api/v1/jobs/{name}/code lists its files"
    raise NotFound(f"the code of {name} has no file {path[:255]!r}", hint=hint)


def _members(name: str, services: Services) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    code = services.records.get(name).plan.task.code
    for chunk in services.blobs.parts(code) if code else ():
        with tarfile.open(chunk, "r:") as archive:
            for member in archive:
                yield member, archive
