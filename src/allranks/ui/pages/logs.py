"""The output of ranks: the end of a file at once however large it is, the rest piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allranks.errors import NotFound, UsageError
from allranks.ui import live, render
from allranks.ui.api import Session, file_path, job_path

if TYPE_CHECKING:
    from allranks.api.jobs import FileAnswer
    from allranks.api.metrics import ShownJob

# Bytes of a piece, of a search at once, and of a line that is shown.
_PIECE, _BLOCK, _LINE = 128 << 10, 1 << 20, 4 << 10
# Bytes after which a search takes a line for ended.
_LONGEST = 4 << 20
# Lines that a search finds before it stops, and bytes between two reports of its progress.
_FOUND, _BEAT = 1000, 64 << 20
_LOG = re.compile(r"attempts/(\d+)/user_logs/(.+)")
_RANK = re.compile(r"std_log(?:_process_0*(\d+))?\.txt")
# What a line of each level and above has in it.
_LEVELS = {
    "error": re.compile(rb"\b(ERROR|CRITICAL|FATAL|Traceback|\w+(?:Error|Exception)\b)"),
    "warning": re.compile(
        rb"\b(WARN(ING)?|ERROR|CRITICAL|FATAL|Traceback|\w+(?:Warning|Error|Exception)\b)", re.I
    ),
}


async def page(request: Request) -> Response:
    session: Session = request.state.session
    name, query = request.path_params["name"], request.query_params
    job: ShownJob = await session.get(job_path(name))
    logs = _logs(await session.get(job_path(name, "files")))
    attempts = sorted({attempt for attempt, _ in logs}, reverse=True)
    attempt = _number(query.get("attempt"), attempts[0] if attempts else 1, "attempt")
    ranks = range(job["processes"])
    choice = query.get("rank") or ("0" if job["processes"] <= 1 else "all")
    if choice != "all" and _number(choice, 0, "rank") not in ranks:
        raise NotFound(f"{name} has no rank {choice}", hint=f"use one of 0 to {len(ranks) - 1}")
    path = "" if choice == "all" else logs.get((attempt, int(choice)), "")
    return render.page(
        request,
        "logs.html",
        tab="logs",
        job=job,
        attempt=attempt,
        attempts=attempts,
        ranks=ranks,
        rank=choice,
        path=path,
        failed=job["error"] and job["error"]["rank"],
    )


async def part(request: Request) -> Response:
    """A piece of a file that ends at byte ``before``, or at its end; it starts with a line."""
    session: Session = request.state.session
    name, path = request.path_params["name"], _path(request)
    before = request.query_params.get("before")
    if before is None:
        span = f"bytes=-{_PIECE}"
    else:
        end = _number(before, 0, "before")
        if end == 0:
            return JSONResponse({"text": "", "start": 0, "end": 0})
        span = f"bytes={max(0, end - _PIECE)}-{end - 1}"
    async with session.stream("GET", file_path(name, path), span=span) as answer:
        data = await answer.aread() if answer.status_code != 416 else b""
        start = _start(answer.headers.get("content-range", ""))
    end = start + len(data)
    if start > 0 and (cut := data.find(b"\n")) >= 0:  # the first line is whole in the piece before
        data, start = data[cut + 1 :], start + cut + 1
    return JSONResponse({"text": data.decode(errors="replace"), "start": start, "end": end})


async def tail(request: Request) -> Response:
    """New output as it is printed, of all ranks or of one. ``ends``: by rank, the bytes that are
    there already."""
    return live.events(_tail(request))


async def _tail(request: Request) -> AsyncIterator[Any]:
    session: Session = request.state.session
    query, name = request.query_params, request.path_params["name"]
    attempt = _number(query.get("attempt"), 1, "attempt")
    try:
        ends = dict(json.loads(query.get("ends") or "{}"))
    except (ValueError, TypeError):
        raise UsageError("they are not the bytes by rank", where="ends") from None
    body: dict[str, Any] = {"attempts": [attempt]}
    if query.get("rank", "all") != "all":
        body["ranks"] = [_number(query["rank"], 0, "rank")]
    within: set[int] = set()
    if "ranks" not in body and not ends:
        ends = await _ends(session, name, attempt)
        within = {rank for rank, end in ends.items() if end}
    body["positions"] = {f"{attempt}/{rank}": end for rank, end in ends.items()}
    async with session.stream("POST", job_path(name, "stream"), body) as answer:
        async for line in answer.aiter_lines():
            if not line:
                yield None
                continue
            event = json.loads(line)
            if "log" in event:
                text = render.printable(event["log"])
                if event["rank"] in within:  # it begins within a line
                    within.discard(event["rank"])
                    text = text.partition("\n")[2]
                yield {"text": text, "rank": event["rank"], "end": event["offset"]}
            elif event.get("last"):
                yield {"over": True}
                return


async def _ends(session: Session, name: str, attempt: int) -> dict[int, int]:
    """Where merged output begins: a little before the end of each rank's file."""
    files: list[FileAnswer] = await session.get(job_path(name, "files"))
    sizes = {each["path"]: each["size"] for each in files}
    logs = {rank: sizes[path] for (a, rank), path in _logs(files).items() if a == attempt}
    each = max(2 << 10, _PIECE // max(1, len(logs)))
    return {rank: max(0, size - each) for rank, size in logs.items()}


async def search(request: Request) -> Response:
    """The lines that have a text, or a level, in the order of the file: of one ``path``, or of all
    ranks of an attempt one after the other."""
    return live.events(_search(request))


async def _search(request: Request) -> AsyncIterator[Any]:
    session: Session = request.state.session
    query, name = request.query_params, request.path_params["name"]
    text = query.get("text", "").encode().lower()
    level = _LEVELS.get(query.get("level", ""))
    paths: list[tuple[str, int | None]] = [(query.get("path", ""), None)]
    if not query.get("path"):
        attempt = _number(query.get("attempt"), 1, "attempt")
        logs = _logs(await session.get(job_path(name, "files")))
        paths = [(path, rank) for (a, rank), path in sorted(logs.items()) if a == attempt]
    count = read = reported = 0
    for path, rank in paths:
        before = read
        async for matches, offset in _matches(session, file_path(name, path), text, level):
            read = before + offset
            if matches:
                matches = matches[: _FOUND - count]
                count += len(matches)
                yield {"lines": matches, "rank": rank, "read": read}
            elif read - reported > _BEAT:
                reported = read
                yield {"lines": [], "read": read}
            if count >= _FOUND:
                yield {"over": True, "found": count, "stopped": True}
                return
    yield {"over": True, "found": count, "stopped": False}


async def _matches(
    session: Session, address: str, text: bytes, level: re.Pattern[bytes] | None
) -> AsyncIterator[tuple[list[str], int]]:
    """The matching lines of each block of a file, and the bytes read so far."""
    rest, offset = b"", 0

    def matching(whole: bytes) -> list[str]:
        # Most blocks have no match: look at the lines only of those that may.
        lines = whole.split(b"\n") if _may(whole, text, level) else []
        return [_shown(line) for line in lines if line and _may(line, text, level)]

    async with session.stream("GET", address) as answer:
        async for block in answer.aiter_bytes(_BLOCK):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if not newline and len(rest) > _LONGEST:  # progress bars may never end a line
                whole, rest = rest, b""
            offset += len(block)
            yield matching(whole), offset
    yield matching(rest), offset


def _shown(line: bytes) -> str:
    return line[:_LINE].decode(errors="replace")


def _may(lines: bytes, text: bytes, level: re.Pattern[bytes] | None) -> bool:
    """Whether one of the lines may match, or the only one does."""
    return text in lines.lower() and (level is None or level.search(lines) is not None)


def _logs(files: list[FileAnswer]) -> dict[tuple[int, int], str]:
    """The paths of the logs by attempt and rank."""
    paths = {}
    for file in files:
        if (place := _LOG.fullmatch(file["path"])) and (rank := _RANK.fullmatch(place[2])):
            paths[int(place[1]), int(rank[1] or 0)] = file["path"]
    return paths


def _path(request: Request) -> str:
    path = request.query_params.get("path", "")
    if not path:
        raise UsageError("no file is named", where="path")
    return path


def _start(span: str) -> int:
    """The first byte of ``bytes 5-9/20``; 0 without it."""
    digits = re.match(r"bytes (\d+)-", span)
    return int(digits[1]) if digits else 0


def _number(text: str | None, otherwise: int, where: str) -> int:
    if text is None:
        return otherwise
    if not text.isdigit():
        raise UsageError(f"{text[:80]!r} is not a number", where=where)
    return int(text)
