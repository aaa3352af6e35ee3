"""The agents' routes for state folders, and for the files of jobs on nodes with disks of their own:
upload and download those of their own job only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from allranks.agent.data.into_file import LARGEST_PIECE, SENDFILE_FROM
from allranks.errors import NotFound, UsageError
from allranks.http_limits.header_limits import CONNECTION
from allranks.server.agent_api.routes import PREFIX, number_of, readable, row_of, who
from allranks.server.assets.node_files import NodeFiles
from allranks.server.assets.state_folders import States
from allranks.server.assets.working_folders import WorkingFolders
from allranks.server.dependencies import Services
from allranks.server.http.file_piece import FilePiece, read_ahead, stamp
from allranks.server.http.large_body import written
from allranks.server.http.request_text import parse
from allranks.store.files.state_folders import State
from allranks.store.jobs.job_rows import JobRow

# The most bytes of contents in one answer, which is assembled in memory.
_MOST = 8 << 20
_HINT = "the agent and the server must have the same version"
# The store that a route is about.
Folders = States | NodeFiles | WorkingFolders
Store = Callable[[Services], Folders]


async def sync(store: Store, request: Request) -> Response:
    """Commit a node's changes as one step; answers with the current state."""
    folders, row, state, node = await _context(store, request)
    changes = parse(await request.body(), names=True)
    turn = folders.turn(row, state) if isinstance(folders, NodeFiles) else nullcontext()
    with readable():
        async with turn:
            answer = await run_in_threadpool(folders.sync, row, state, node, changes)
    # Not JSONResponse: json.dumps escapes names that are not UTF-8 without loss.
    return Response(json.dumps(answer), media_type="application/json")


async def torn(store: Store, request: Request) -> Response:
    """Save incomplete files of a node, beside the complete ones that stay current. Answers with
    their version of a state, or the folder in the record that has those of a working folder."""
    folders, row, state, node = await _context(store, request)
    changes = parse(await request.body(), names=True)
    assert not isinstance(folders, NodeFiles)
    with readable():
        return JSONResponse(await run_in_threadpool(folders.keep_torn, row, state, node, changes))


async def missing(store: Store, request: Request) -> Response:
    """Those of the contents that are missing here, with the bytes received so far."""
    _, _, state, _ = await _context(store, request)
    digests = await _digests(request)
    sizes = await run_in_threadpool(lambda: {each: state.incoming.size(each) for each in digests})
    return JSONResponse({digest: have for digest, have in sizes.items() if have is not None})


async def take(store: Store, request: Request) -> Response:
    """Receive a piece of one content."""
    _, _, state, _ = await _context(store, request)
    sha256 = request.path_params["sha256"]
    offset, size = (number_of(request, each) for each in ("offset", "size"))
    have = offset

    async def write(piece: memoryview, at: int) -> None:
        nonlocal have
        if have == at:  # else only read: who still sends does not read the answer
            have = await run_in_threadpool(state.receive, sha256, at, size, piece)

    await written(request, offset, write)
    return JSONResponse({"have": have})


async def take_several(store: Store, request: Request) -> Response:
    """Receive small contents: a line of JSON, [[SHA-256, bytes], …], then the contents."""
    _, _, state, _ = await _context(store, request)
    data = await request.body()
    await run_in_threadpool(state.incoming.unpack, data)
    return Response(status_code=204)


async def give(store: Store, request: Request) -> Response:
    """Send a piece of one content of the state; nothing if its file is gone, which the caller
    notices by the hash."""
    _, _, state, _ = await _context(store, request)
    offset, size = (number_of(request, each) for each in ("offset", "size"))
    sha256 = request.path_params["sha256"]
    try:
        return await run_in_threadpool(_piece, request, state, sha256, offset, size)
    except FileNotFoundError:
        return Response(b"")


async def give_several(store: Store, request: Request) -> Response:
    """Send small contents in the format of `take_several`."""
    _, _, state, _ = await _context(store, request)
    digests = await _digests(request)
    data = await run_in_threadpool(_pieces, state, digests)
    return Response(data, media_type="application/octet-stream")


async def damaged(store: Store, request: Request) -> Response:
    """A node downloaded a content twice with a wrong hash: restore a version without it."""
    _, _, state, _ = await _context(store, request)
    sha256 = request.path_params["sha256"]
    version = await run_in_threadpool(state.fall_back, sha256)
    if version is None:
        raise NotFound(
            f"a file of the state {state.folder.name} is damaged in the server's home, and no "
            "earlier version is intact",
            where=str(state.content(sha256)),
            hint=f"inspect it: allranks state show {state.folder.name}; to start over: "
            f"allranks state delete {state.folder.name}",
        )
    return JSONResponse({"version": version.number})


async def unfinished(request: Request) -> Response:
    """Record which files of a working folder are being written."""
    folders, row, _, node = await _context(lambda services: services.working_folders, request)
    paths = parse(await request.body(), names=True)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError("unfinished files must be a list of paths", hint=_HINT)
    assert isinstance(folders, WorkingFolders)
    await run_in_threadpool(folders.report_unfinished, row, node, paths)
    return JSONResponse({})


def routes() -> list[Route]:
    states: Store = lambda services: services.states  # noqa: E731
    work: Store = lambda services: services.working_folders  # noqa: E731
    return [
        Route(PREFIX + "/{node:int}/state/torn", partial(torn, states), methods=["POST"]),
        Route(PREFIX + "/{node:int}/work/torn", partial(torn, work), methods=["POST"]),
        *_routes("state", states),
        *_routes("record", lambda services: services.node_files),
        *_routes("work", work),
        Route(PREFIX + "/{node:int}/work/unfinished", unfinished, methods=["PUT"]),
        # Of another node's working folder.
        *_routes("work/of/{of:int}", work),
    ]


def _routes(kind: str, store: Store) -> list[Route]:
    at, content = PREFIX + "/{node:int}/" + kind, "/contents/{sha256}"
    return [
        Route(at + "/sync", partial(sync, store), methods=["POST"]),
        Route(at + "/missing", partial(missing, store), methods=["POST"]),
        Route(at + "/contents", partial(take_several, store), methods=["PUT"]),
        Route(at + "/contents", partial(give_several, store), methods=["POST"]),
        Route(at + content, partial(take, store), methods=["PUT"]),
        Route(at + content, partial(give, store), methods=["GET"]),
        Route(at + content + "/damaged", partial(damaged, store), methods=["POST"]),
    ]


async def _context(store: Store, request: Request) -> tuple[Folders, JobRow, State, int]:
    services, agent = who(request)
    row = await row_of(services, agent)
    folders = store(services)
    node = request.path_params.get("of", agent.node)
    return folders, row, folders.allowed(row, agent.launch, node), node


async def _digests(request: Request) -> list[str]:
    """The list of SHA-256 in the body. Raises UsageError."""
    digests = parse(await request.body())
    if not isinstance(digests, list) or not all(isinstance(digest, str) for digest in digests):
        raise UsageError("contents must be a list of SHA-256", hint=_HINT)
    return [*dict.fromkeys(digests)]


def _piece(request: Request, state: State, sha256: str, offset: int, size: int) -> Response:
    """Raises FileNotFoundError."""
    _sizes(state, [sha256])
    with ExitStack() as stack:
        file = stack.enter_context(state.content(sha256).open("rb", buffering=0))
        seen = stamp(file.fileno())
        size = max(0, min(size, LARGEST_PIECE, seen[0] - offset))
        if size < SENDFILE_FROM or CONNECTION not in request.scope:
            return Response(os.pread(file.fileno(), min(size, _MOST), offset))
        read_ahead(file.fileno(), offset, size)
        stack.pop_all()
    return FilePiece(file, seen, offset, size, ExitStack())


def _pieces(state: State, digests: list[str]) -> bytes:
    sizes = _sizes(state, digests)
    if sum(sizes) > _MOST:
        raise UsageError(
            f"contents of one request must not exceed {_MOST} bytes", hint="request fewer"
        )
    contents = [_read(state.content(d), size) for d, size in zip(digests, sizes, strict=True)]
    head = json.dumps([[each, len(data)] for each, data in zip(digests, contents, strict=True)])
    return b"".join([head.encode(), b"\n", *contents])


def _sizes(state: State, digests: list[str]) -> list[int]:
    """The sizes of contents of the state. Raises NotFound for contents of other states."""
    sizes = {entry.sha256: entry.size for entry in state.entries().values()}
    try:
        return [sizes[digest] for digest in digests]
    except KeyError:
        raise NotFound("not a content of this state", hint="sync the state first") from None


def _read(content: Path, size: int) -> bytes:
    """Empty if the file is gone, which the caller notices by the hash."""
    try:
        with content.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), size, 0)
    except FileNotFoundError:
        return b""
