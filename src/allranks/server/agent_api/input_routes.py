"""The agents' routes for inputs that lie in the server's home, for nodes with disks of their own.

Only what people may read by other routes is served: files of jobs and models, and datastores that
are folders here. A link counts only if it stays inside the input.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allranks.agent.data import local_files
from allranks.core.data.state_manifest import is_path
from allranks.errors import Conflict, NotFound, Unauthorized, UsageError
from allranks.server.agent_api.routes import PREFIX, readable, row_of, who
from allranks.server.dependencies import Services
from allranks.server.http.request_text import parse
from allranks.statuses import TERMINAL

# The most bytes in one answer, which is assembled in memory.
_MOST = 8 << 20


async def listing(request: Request) -> Response:
    """The files of an input with name, size, ``mtime_ns`` and mode; whether it is one file; and how
    many were left out because they lie elsewhere."""
    source = await _source(request)
    answer = await run_in_threadpool(_listed, source)
    # Not JSONResponse: json.dumps escapes names that are not UTF-8 without loss.
    return Response(json.dumps(answer), media_type="application/json")


async def pieces(request: Request) -> Response:
    """The bytes of pieces, [[name, size of the file, mtime_ns, offset, size], …], one after the
    other."""
    source = await _source(request)
    requested = parse(await request.body(), names=True)
    with readable():
        data = await run_in_threadpool(_read, source, requested)
    return Response(data, media_type="application/octet-stream")


def routes() -> list[Route]:
    path = PREFIX + "/{node:int}/input/{name}"
    return [Route(path, listing), Route(path, pieces, methods=["POST"])]


async def _source(request: Request) -> Path:
    """Where the input of that name lies, without links. Raises NotFound and Unauthorized."""
    services, agent = who(request)
    row, name = await row_of(services, agent), request.path_params["name"]
    if row.record.status in TERMINAL or agent.launch != row.record.launch:
        raise Unauthorized("this launch is over", hint="leave")
    inputs = row.plan.task.inputs if row.plan.task.sends_files else ()
    source = next((each.source for each in inputs if each.name == name), None)
    if source:
        real = Path(os.path.realpath(source))
        if real.exists() and any(real.is_relative_to(root) for root in _roots(services)):
            return real
    raise NotFound(
        f"the input {name} lies neither on the nodes nor in a datastore of the server",
        where=source or None,
        hint="put it in a datastore, in an output of a job, or on a volume of the nodes",
    )


def _roots(services: Services) -> Iterator[Path]:
    home = services.home
    folders = [str(home.jobs), str(home.models)]
    folders += [
        each.path or "" for each in services.datastores.all().values() if each.type == "file"
    ]
    for folder in folders:
        real = os.path.realpath(folder) if folder else "/"
        if real != "/":
            yield Path(real)


def _listed(source: Path) -> dict[str, object]:
    left_out = 0

    def enters(real: str) -> bool:
        nonlocal left_out
        inside = Path(real).is_relative_to(source)
        left_out += not inside
        return inside

    entries, is_file = local_files.list_files(source, enters)
    files = []
    for entry in entries:
        try:
            with _opened(source, entry.key) as file:
                status = os.fstat(file)
        except FileNotFoundError:  # it was removed meanwhile
            continue
        except NotFound:
            left_out += 1
            continue
        mode = stat.S_IMODE(status.st_mode)
        files.append([entry.name, status.st_size, status.st_mtime_ns, mode])
    return {"files": files, "is_file": is_file, "left_out": left_out}


@contextlib.contextmanager
def _opened(source: Path, path: str) -> Iterator[int]:
    """Open a file of the input. Raises OSError, and NotFound if it lies elsewhere."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe does not block
    try:
        # Asked once it is open: before that, a link could take its place.
        if not Path(os.path.realpath(f"/proc/self/fd/{file}")).is_relative_to(source):
            raise NotFound("the input has no such file", where=path, hint="list it again")
        yield file
    finally:
        os.close(file)


def _read(source: Path, requested: object) -> bytes:
    if not isinstance(requested, list):
        raise UsageError("pieces must be a list", hint="send one")
    parts, left = list[bytes](), _MOST
    for name, length, mtime_ns, offset, size in requested:
        if not all(type(each) is int and each >= 0 for each in (length, offset, size)):
            raise UsageError("sizes must be numbers", hint="take those of the list")
        left -= size
        if left < 0 or not is_path(f"input/{name}"):
            raise UsageError("these pieces are not available", hint=f"at most {_MOST} bytes")
        path = source if source.is_file() else source / name
        parts.append(_piece(source, path, (length, mtime_ns), offset, size))
    return b"".join(parts)


def _piece(source: Path, path: Path, stamp: tuple[int, int], offset: int, size: int) -> bytes:
    now, data = None, b""
    with contextlib.suppress(OSError), _opened(source, str(path)) as file:
        data = os.pread(file, size, offset)
        status = os.fstat(file)  # after reading: a write meanwhile is seen
        now = (status.st_size, status.st_mtime_ns)
    if now != stamp:
        raise Conflict("the input changed while it was downloaded", hint="run the job again")
    return data
