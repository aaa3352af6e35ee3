"""Routes for state folders: agents bring and fetch what their own job has, and nothing else."""

from __future__ import annotations

import json

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from allranks.errors import NotFound, UsageError
from allranks.server.agents.routes import PREFIX, number_of, readable, who
from allranks.server.dependencies import Services
from allranks.server.http.request_text import parse
from allranks.store.files.state_folders import State
from allranks.store.job_rows import JobRow

# The most of a content, or of several, in one answer: it is put together in memory.
_MOST = 8 << 20


async def sync(request: Request) -> Response:
    """What a node has changed, in one step; what there is now comes back."""
    with_, row, state, node = await _asked(request)
    told = parse(await request.body(), names=True)
    with readable():
        answer = await run_in_threadpool(with_.states.sync, row, state, node, told)
    # By hand: a name that is not UTF-8 is written as the escapes that make it whole again.
    return Response(json.dumps(answer), media_type="application/json")


async def missing(request: Request) -> Response:
    """Of these contents those that are not here, with how much of each is."""
    _, _, state, _ = await _asked(request)
    wanted = await _wanted(request)
    found = await run_in_threadpool(lambda: {each: state.received(each) for each in wanted})
    return JSONResponse({each: have for each, have in found.items() if have is not None})


async def take(request: Request) -> Response:
    """A piece of one content."""
    _, _, state, _ = await _asked(request)
    sha256, data = request.path_params["sha256"], await request.body()
    offset, size = (number_of(request, each) for each in ("offset", "size"))
    have = await run_in_threadpool(state.receive, sha256, offset, size, data)
    return JSONResponse({"have": have})


async def take_several(request: Request) -> Response:
    """Small contents: a line of JSON, [[SHA-256, bytes], …], and they, one after the other."""
    _, _, state, _ = await _asked(request)
    data = await request.body()
    with readable():
        await run_in_threadpool(_take_all, state, data)
    return Response(status_code=204)


async def give(request: Request) -> Response:
    """A piece of one content of the state's."""
    _, _, state, _ = await _asked(request)
    offset, size = (number_of(request, each) for each in ("offset", "size"))
    sha256 = request.path_params["sha256"]
    data = await run_in_threadpool(_piece, state, sha256, offset, min(size, _MOST))
    return Response(data, media_type="application/octet-stream")


async def give_several(request: Request) -> Response:
    """Small contents as they were sent; those that would be too much at once are left out."""
    _, _, state, _ = await _asked(request)
    wanted = await _wanted(request)
    data = await run_in_threadpool(_pieces, state, wanted)
    return Response(data, media_type="application/octet-stream")


async def damaged(request: Request) -> Response:
    """A node has fetched it twice, and twice it was not what its name says."""
    _, _, state, _ = await _asked(request)
    sha256 = request.path_params["sha256"]
    version = await run_in_threadpool(state.fall_back, sha256)
    if version is None:
        raise NotFound(
            f"a file of the state {state.folder.name} is damaged in the server's home, and no "
            "version from before is whole",
            where=str(state.content(sha256)),
            hint=f"look at what there is: allranks state show {state.folder.name}; to begin anew: "
            f"allranks state delete {state.folder.name}",
        )
    return JSONResponse({"version": version.number})


def routes() -> list[Route]:
    at, content = PREFIX + "/{node:int}/state", "/contents/{sha256}"
    return [
        Route(at + "/sync", sync, methods=["POST"]),
        Route(at + "/missing", missing, methods=["POST"]),
        Route(at + "/contents", take_several, methods=["PUT"]),
        Route(at + "/contents", give_several, methods=["POST"]),
        Route(at + content, take, methods=["PUT"]),
        Route(at + content, give, methods=["GET"]),
        Route(at + content + "/damaged", damaged, methods=["POST"]),
    ]


async def _asked(request: Request) -> tuple[Services, JobRow, State, int]:
    with_, agent = who(request)
    row = await run_in_threadpool(with_.records.get, agent.job)
    return with_, row, with_.states.allowed(row, agent.launch, agent.node), agent.node


async def _wanted(request: Request) -> list[str]:
    """The SHA-256 of some contents. Raises UsageError."""
    found = parse(await request.body())
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UsageError("contents come as a list of SHA-256", hint="is the agent of this version?")
    return found


def _take_all(state: State, data: bytes) -> None:
    head, _, rest = data.partition(b"\n")
    at = 0
    for sha256, size in parse(head):
        piece = rest[at : at + size]
        at += size
        # What came of it before, in pieces, is gone on with by whom it came from.
        have = state.receive(sha256, 0, size, piece)
        if have < size:
            state.receive(sha256, have, size, piece[have:])


def _piece(state: State, sha256: str, offset: int, size: int) -> bytes:
    _sizes(state, [sha256])
    return _read(state, sha256, offset, size)


def _pieces(state: State, wanted: list[str]) -> bytes:
    sizes = _sizes(state, wanted)
    if sum(sizes) > _MOST:
        raise UsageError(f"{_MOST} bytes at most at once", hint="ask for fewer")
    found = [_read(state, each, 0, size) for each, size in zip(wanted, sizes, strict=True)]
    head = json.dumps([[each, len(data)] for each, data in zip(wanted, found, strict=True)])
    return b"".join([head.encode(), b"\n", *found])


def _sizes(state: State, wanted: list[str]) -> list[int]:
    """Raises NotFound for a content that the state has not got, whoever else has."""
    sizes = {each.sha256: each.size for each in state.entries().values()}
    try:
        return [sizes[each] for each in wanted]
    except KeyError:
        hint = "ask for what there is now"
        raise NotFound("that is no content of this state", hint=hint) from None


def _read(state: State, sha256: str, offset: int, size: int) -> bytes:
    """Nothing of one that is gone: who asked for it holds it against its name."""
    try:
        with state.content(sha256).open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except FileNotFoundError:
        return b""
