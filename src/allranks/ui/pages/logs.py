"""The output of ranks: the end of a file at once however large it is, the rest piece by piece."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allranks.api import routes
from allranks.errors import NotFound, UsageError
from allranks.ui import live, render
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.jobs import FileAnswer

# Seconds: of a question for new lines, and the least between two of them.
_WAIT, _LEAST = 25.0, 0.2
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
    job = await session.get(routes.show_job, name)
    logs = logs_of(await session.get(routes.job_files, name))
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
    """Lines of one rank or of all: the last ones, those ``before`` or ``after`` a place, or those
    around the place ``at``. Places of one rank are bytes, those of all ranks pieces."""
    session: Session = request.state.session
    query = request.query_params
    if query.get("rank", "all") == "all":
        keys = ("attempt", "before", "after")
        places = {key: query.get(key) for key in keys}
        answer = await session.get(
            routes.merged_log, request.path_params["name"], **places, at=query.getlist("at")
        )
        return JSONResponse(answer)
    after = _place(query.get("after"), "after")
    before = _place(query.get("before"), "before")
    at = _place((query.get("at") or "").rpartition(":")[2] or None, "at")
    if at is not None:
        after = max(0, at - _PIECE // 4)
    if after is not None:
        span = f"bytes={after}-{after + _PIECE - 1}"
    elif before is not None:
        span = f"bytes={max(0, before - _PIECE)}-{max(0, before - 1)}"
    else:
        span = f"bytes=-{_PIECE}"
    if before == 0:
        return JSONResponse({"lines": [], "begin": 0, "end": 0, "over": False})
    async with session.stream(
        routes.job_file, request.path_params["name"], _path(request), span=span
    ) as answer:
        data = await answer.aread() if answer.status_code != 416 else b""
        start, size = _extent(answer.headers.get("content-range", ""))
    end = start + len(data)
    if start > 0 and (at is not None or after is None) and (cut := data.find(b"\n")) >= 0:
        data, start = (
            data[cut + 1 :],
            start + cut + 1,
        )  # its first line is whole in the piece before
    rest = data.rpartition(b"\n")[2]
    if query.get("live") or (end < size and len(rest) < len(data)):
        data, end = data[: len(data) - len(rest)], end - len(rest)
    return JSONResponse(
        {"lines": _lines(data, start), "begin": start, "end": end, "over": end >= size}
    )


def _lines(data: bytes, start: int) -> list[dict[str, Any]]:
    """Lines with their places. Of what tqdm and others draw over, the last state is left."""
    lines = []
    for line in data.removesuffix(b"\n").split(b"\n") if data else ():
        text = _shown(line.rstrip(b"\r").rpartition(b"\r")[2])
        lines.append({"offset": start, "text": text})
        start += len(line) + 1
    return lines


async def tail(request: Request) -> Response:
    """New lines, of all ranks or of one, as they are printed after the place ``after``."""
    merged = request.query_params.get("rank", "all") == "all"
    return live.events(_tail_of_all(request) if merged else _tail_of_one(request))


async def _tail_of_all(request: Request) -> AsyncIterator[Any]:
    session: Session = request.state.session
    attempt = request.query_params.get("attempt")
    after = _number(request.query_params.get("after"), 0, "after")
    while True:
        answer = await session.get(
            routes.merged_log,
            request.path_params["name"],
            attempt=attempt,
            after=after,
            timeout=_WAIT,
        )
        after = answer["end"]
        yield answer if answer["lines"] or answer["over"] else None
        if answer["over"]:
            return
        await asyncio.sleep(_LEAST)


async def _tail_of_one(request: Request) -> AsyncIterator[Any]:
    session: Session = request.state.session
    query = request.query_params
    attempt, rank = _number(query.get("attempt"), 1, "attempt"), _number(query["rank"], 0, "rank")
    end = _number(query.get("after"), 0, "after")
    rest = b""
    body = {"attempts": [attempt], "ranks": [rank], "positions": {f"{attempt}/{rank}": end}}
    async with session.stream(routes.stream_job, request.path_params["name"], body=body) as answer:
        async for line in answer.aiter_lines():
            event = json.loads(line) if line else {}
            if "log" in event:
                rest += event["log"].encode(errors="surrogateescape")
                whole, newline, rest = rest.rpartition(b"\n")
                lines, end = _lines(whole + newline, end), end + len(whole + newline)
                yield {"lines": lines, "end": end, "over": False}
            elif event.get("last"):
                yield {"lines": _lines(rest, end), "end": end + len(rest), "over": True}
                return
            else:
                yield None


async def search(request: Request) -> Response:
    """The lines that have a text, or a level, in the order of the file: of one ``path``, or of all
    ranks of an attempt one after the other; with ``first``, the first line of each."""
    return live.events(_search(request))


async def _search(request: Request) -> AsyncIterator[Any]:
    session: Session = request.state.session
    query, name = request.query_params, request.path_params["name"]
    text = query.get("text", "").encode().lower()
    level = _LEVELS.get(query.get("level", ""))
    paths: list[tuple[str, int | None]] = [(query.get("path", ""), None)]
    if not query.get("path"):
        attempt = _number(query.get("attempt"), 1, "attempt")
        logs = logs_of(await session.get(routes.job_files, name))
        paths = [(path, rank) for (a, rank), path in sorted(logs.items()) if a == attempt]
    count = read = reported = 0
    for path, rank in paths:
        before = read
        async for matches, offset in _matches(session, (name, path), text, level):
            read = before + offset
            if matches:
                matches = matches[: 1 if query.get("first") else _FOUND - count]
                count += len(matches)
                lines = [{"rank": rank, "offset": at, "text": text} for at, text in matches]
                yield {"lines": lines, "read": read}
                if query.get("first"):
                    break
            elif read - reported > _BEAT:
                reported = read
                yield {"lines": [], "read": read}
            if count >= _FOUND:
                yield {"over": True, "found": count, "stopped": True}
                return
    yield {"over": True, "found": count, "stopped": False}


async def _matches(
    session: Session, file: tuple[str, str], text: bytes, level: re.Pattern[bytes] | None
) -> AsyncIterator[tuple[list[tuple[int, str]], int]]:
    """The matching lines of each block of a job's file with their places, and the bytes read."""
    rest, offset = b"", 0

    def matching(whole: bytes, start: int) -> Iterator[tuple[int, str]]:
        # Most blocks have no match: look at the lines only of those that may.
        for line in whole.split(b"\n") if _may(whole, text, level) else ():
            if line and _may(line, text, level):
                yield start, _shown(line)
            start += len(line) + 1

    async with session.stream(routes.job_file, *file) as answer:
        async for block in answer.aiter_bytes(_BLOCK):
            start = offset - len(rest)
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if not newline and len(rest) > _LONGEST:  # progress bars may never end a line
                whole, rest = rest, b""
            offset += len(block)
            yield [*matching(whole, start)], offset
    yield [*matching(rest, offset - len(rest))], offset


def _shown(line: bytes) -> str:
    return line[:_LINE].decode(errors="replace")


def _may(lines: bytes, text: bytes, level: re.Pattern[bytes] | None) -> bool:
    """Whether one of the lines may match, or the only one does."""
    return text in lines.lower() and (level is None or level.search(lines) is not None)


def logs_of(files: list[FileAnswer]) -> dict[tuple[int, int], str]:
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


def _extent(span: str) -> tuple[int, int]:
    """The first byte and the size of the whole in ``bytes 5-9/20``; zeros without it."""
    digits = re.match(r"bytes (\d+)-\d+/(\d+)", span)
    return (int(digits[1]), int(digits[2])) if digits else (0, 0)


def _place(text: str | None, where: str) -> int | None:
    return None if text is None else _number(text, 0, where)


def _number(text: str | None, otherwise: int, where: str) -> int:
    if text is None:
        return otherwise
    if not text.isdigit():
        raise UsageError(f"{text[:80]!r} is not a number", where=where)
    return int(text)
