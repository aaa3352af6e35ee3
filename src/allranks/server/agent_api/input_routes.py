"""The agents' routes for inputs that the server sees, for nodes that do not see the same files.

Of the home only what people may read by other routes is served: files of jobs and models, and
datastores that are folders here. Of other disks only paths that a job named while the server saw
them. In the home, and in folders of datastores, a link counts only if it stays inside the input.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from allranks.agent.data import local_files
from allranks.agent.data.into_file import LARGEST_PIECE, SENDFILE_FROM
from allranks.agent.data.local_digest import digest_of
from allranks.core.data.state_manifest import is_path
from allranks.errors import Conflict, NotFound, Passing, Unauthorized, UsageError
from allranks.http_limits.header_limits import CONNECTION
from allranks.server.agent_api.routes import PREFIX, readable, row_of, who
from allranks.server.dependencies import Services
from allranks.server.http.file_piece import FilePiece, read_ahead, stamp
from allranks.server.http.request_text import parse
from allranks.statuses import TERMINAL

if TYPE_CHECKING:
    from allranks.api.agents import InputDigest, InputListing, OutputSeen

# The most bytes in an answer that is assembled in memory.
_MOST = 8 << 20
# Bytes that are encrypted and sent at once: meanwhile the server answers nobody.
_CHUNK = 1 << 20
# Seconds that a call waits for its turn, and for which it has one at most while a file is sent.
_TURN, _LONGEST_TURN = 10.0, 1.0
_MARK = re.compile(r"[0-9a-f]{32}")
# No input is read from there.
_SYSTEM = ("/proc", "/sys", "/dev")


class _Piece(NamedTuple):
    """``size`` bytes of a file from ``offset`` on. ``stamp``: the file's size and mtime in ns."""

    name: str
    stamp: tuple[int, int]
    offset: int
    size: int


class Reach(NamedTuple):
    """What belongs to an input: files below ``source``; and, unless it lies in a store of the
    server, those that its links lead to, but not those of the ``home``."""

    source: Path
    home: Path | None = None

    def allows(self, real: str) -> bool:
        source = str(self.source)
        # Without pathlib, which takes longer than all else that a small file needs.
        if real == source or real.startswith(f"{source.rstrip('/')}/"):
            return True
        return self.home is not None and not _is_ours(Path(real), self.home)


def _is_ours(path: Path, home: Path) -> bool:
    """Whether a path is part of the home or of the system, or contains the home."""
    parts = (home, *map(Path, _SYSTEM))
    return any(path.is_relative_to(part) for part in parts) or home.is_relative_to(path)


async def listing(request: Request) -> Response:
    """The files of an input."""
    services, agent = who(request)
    reach = await _reach(request)
    listings, key = services.input_turns.listings, (agent.job, agent.launch, str(reach.source))
    # The nodes of a gang ask at the same time: one walk through a large folder is enough.
    if key not in listings:
        listings[key] = asyncio.create_task(run_in_threadpool(_listed, reach))
        listings[key].add_done_callback(lambda _: listings.pop(key, None))
    answer = await asyncio.shield(listings[key])
    # Not JSONResponse: json.dumps escapes names that are not UTF-8 without loss.
    return Response(json.dumps(answer), media_type="application/json")


async def digest(request: Request) -> Response:
    """What the server sees at the path of an input now."""
    reach = await _reach(request)
    answer: InputDigest = {"digest": await run_in_threadpool(digest_of, reach.source)}
    return JSONResponse(answer)


async def pieces(request: Request) -> Response:
    """The bytes of pieces, [[name, size of the file, mtime_ns, offset, size], …], one after the
    other. Raises Passing if the server sends to others for too long."""
    services, _ = who(request)
    reach = await _reach(request)
    requested = parse(await request.body(), names=True)
    free = services.input_turns.free
    try:
        async with asyncio.timeout(_TURN):
            await free.acquire()
    except TimeoutError:
        raise Passing("the server sends files to other nodes", hint="ask again") from None
    turn = ExitStack()
    turn.callback(free.release)
    try:
        with readable():
            pieces = _pieces(requested)
            if len(pieces) == 1 and pieces[0].size >= SENDFILE_FROM and CONNECTION in request.scope:
                file = await run_in_threadpool(_opened_file, reach, pieces[0])
                asyncio.get_running_loop().call_later(_LONGEST_TURN, turn.close)
                return FilePiece(file, *pieces[0][1:], turn)
            return _Answer(await run_in_threadpool(_read, reach, pieces), turn)
    except BaseException:
        turn.close()
        raise


class _Answer(Response):
    """Bytes that take their turn until they are sent."""

    def __init__(self, data: bytes, turn: ExitStack) -> None:
        super().__init__(data, media_type="application/octet-stream")
        self._data, self._turn = memoryview(data), turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        # What the connection takes at once costs no turn of the loop for each piece.
        if (connection := scope.get(CONNECTION)) is not None:
            connection.transport.set_write_buffer_limits(high=_MOST)
        try:
            await send(start)
            for at in range(0, max(1, len(self._data)), _CHUNK):
                more = at + _CHUNK < len(self._data)
                body = self._data[at : at + _CHUNK]
                await send({"type": "http.response.body", "body": body, "more_body": more})
                # Others of this loop have their turn, also where no buffer is ever full.
                await asyncio.sleep(0)
        finally:
            self._turn.close()


async def output_seen(request: Request) -> Response:
    """Whether a node's file of a random name is in the folder of an output here, too."""
    services, agent = who(request)
    row, name = await row_of(services, agent), request.path_params["name"]
    output = next((output for output in row.plan.task.outputs if output.name == name), None)
    mark = request.path_params["mark"]
    if output is None or not _MARK.fullmatch(mark):
        raise NotFound(f"the job has no output {name!r}", hint="leave it out")
    folder = os.path.dirname(output.path) if output.is_file else output.path
    exists = await run_in_threadpool(os.path.exists, f"{folder}/.allranks-{mark}")
    answer: OutputSeen = {"seen": exists}
    return JSONResponse(answer)


def routes() -> list[Route]:
    path = PREFIX + "/{node:int}/input/{name}"
    return [
        Route(path, listing),
        Route(path, pieces, methods=["POST"]),
        Route(path + "/digest", digest),
        Route(PREFIX + "/{node:int}/output/{name}/{mark}", output_seen),
    ]


async def _reach(request: Request) -> Reach:
    """Where the input of that name lies, without links. Raises NotFound and Unauthorized."""
    services, agent = who(request)
    row, name = await row_of(services, agent), request.path_params["name"]
    if row.record.status in TERMINAL or agent.launch != row.record.launch:
        raise Unauthorized("this launch is over", hint="leave")
    task = row.plan.task
    item = next((item for item in task.inputs if item.name == name), None)
    if item is not None and item.source and (task.is_received or item.digest):
        real, home = Path(os.path.realpath(item.source)), services.home.root.resolve()
        if real.exists() and any(real.is_relative_to(root) for root in _roots(services)):
            return Reach(real)
        if item.digest and real.exists() and not _is_ours(real, home):
            return Reach(real, home)
    raise NotFound(
        f"the input {name} lies neither on the nodes nor in a datastore of the server",
        where=item.source if item is not None else None,
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


def _listed(reach: Reach) -> InputListing:
    left_out = 0

    def enters(real: str) -> bool:
        nonlocal left_out
        inside = reach.allows(real)
        left_out += not inside
        return inside

    entries, is_file = local_files.list_files(reach.source, enters)
    files = list[tuple[str, int, int, int]]()
    for entry in entries:
        try:
            with _opened(reach, entry.key) as file:
                status = os.fstat(file)
        except FileNotFoundError:  # it was removed meanwhile
            continue
        except NotFound:
            left_out += 1
            continue
        mode = stat.S_IMODE(status.st_mode)
        files.append((entry.name, status.st_size, status.st_mtime_ns, mode))
    return {"files": files, "is_file": is_file, "left_out": left_out}


@contextlib.contextmanager
def _opened(reach: Reach, path: str) -> Iterator[int]:
    """Open a file of the input. Raises OSError, and NotFound if it lies elsewhere."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe does not block
    try:
        # Asked once it is open: before that, a link could take its place.
        if not reach.allows(os.readlink(f"/proc/self/fd/{file}")):
            raise NotFound("the input has no such file", where=path, hint="list it again")
        yield file
    finally:
        os.close(file)


def _pieces(requested: object) -> list[_Piece]:
    if not isinstance(requested, list):
        raise UsageError("pieces must be a list", hint="send one")
    pieces, most = list[_Piece](), _MOST if len(requested) > 1 else LARGEST_PIECE
    left = most
    for name, length, mtime_ns, offset, size in requested:
        if not all(type(each) is int and each >= 0 for each in (length, offset, size)):
            raise UsageError("sizes must be numbers", hint="take those of the list")
        left -= size
        if left < 0 or not is_path(f"input/{name}"):
            raise UsageError("these pieces are not available", hint=f"at most {most} bytes")
        pieces.append(_Piece(name, (length, mtime_ns), offset, size))
    return pieces


def _read(reach: Reach, pieces: Sequence[_Piece]) -> bytes:
    parts = []
    for piece in pieces:
        with _unchanged(reach, piece) as file:
            parts.append(os.pread(file, piece.size, piece.offset))
    return b"".join(parts)


def _opened_file(reach: Reach, piece: _Piece) -> io.FileIO:
    """The open file of a piece, which was read."""
    with ExitStack() as stack:
        with _unchanged(reach, piece) as number:
            file = stack.enter_context(io.FileIO(os.dup(number)))
            read_ahead(number, piece.offset, piece.size)
        stack.pop_all()
    return file


@contextlib.contextmanager
def _unchanged(reach: Reach, piece: _Piece) -> Iterator[int]:
    """The open file of a piece. Raises Conflict if it is another one afterwards than at first."""
    source, now = str(reach.source), None
    path = f"{source}/{piece.name}" if os.path.isdir(source) else source
    with contextlib.suppress(OSError), _opened(reach, path) as file:
        yield file
        now = stamp(file)  # after reading: a write meanwhile is seen
    if now != piece.stamp:
        raise Conflict("the input changed while it was downloaded", hint="run the job again")
