"""The route of the output of all ranks as one log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.concurrency import run_in_threadpool

from allranks.api.jobs import MergedLog as Answer
from allranks.errors import NotFound, UsageError
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.request_limits import Count
from allranks.server.jobs import view
from allranks.server.jobs.merged_log import WINDOW, MergedLog
from allranks.statuses import TERMINAL
from allranks.store.files.log_times import LogTimes
from allranks.store.jobs.job_rows import JobRow

# Digits of a place: Python reads no number of thousands.
_LONGEST = 40


async def merged(
    name: str,
    services: ServicesDep,
    attempt: Count = 0,
    before: Count | None = None,
    after: Count | None = None,
    at: list[str] | None = None,
    timeout: Annotated[float, Field(ge=0)] = 0.0,
) -> Answer:
    """Output of all ranks by time, in pieces: the last ones, or those
    ``before`` or ``after`` a number, or around the first of the places ``at`` ("RANK:BYTE"). After
    the last piece it waits up to ``timeout`` seconds (at most 60) for more. ``attempt`` 0 is the
    newest."""
    count = services.wakeups.count(name)
    answer = await run_in_threadpool(_window, services, name, attempt, before, after, at or ())
    if timeout and after is not None and not answer["lines"] and not answer["over"]:
        await services.wakeups.wait(name, count, min(timeout, 60.0))
        answer = await run_in_threadpool(_window, services, name, attempt, before, after, ())
    return answer


def _window(
    services: Services,
    name: str,
    attempt: int,
    before: int | None,
    after: int | None,
    at: list[str] | tuple[str, ...],
) -> Answer:
    row = services.records.get(name)
    ended = row.record.status in TERMINAL or 0 < attempt < row.record.attempt
    attempt = attempt or row.record.attempt
    log = _log(services, row, attempt)
    piece = None
    if at:
        piece = log.find([place_of(text) for text in at])
        if piece is None:
            hint = "the log may have been cut since: search for a word of the line"
            raise NotFound(f"{name} has printed nothing there", where=at[0][:80], hint=hint)
        begin = log.before(piece, WINDOW // 4).begin
        window = log.after(begin)
    elif after is not None:
        window = log.after(after)
    else:
        window = log.before(log.pieces if before is None else before)
    lines = log.lines(window)
    over = ended and window.end == log.pieces
    if over and before is None:
        lines += log.unfinished()
    return {
        "attempt": attempt,
        "lines": lines,
        "begin": window.begin,
        "end": window.end,
        "pieces": log.pieces,
        "place": piece,
        "ordered": log.ordered,
        "over": over,
    }


def _log(services: Services, row: JobRow, attempt: int) -> MergedLog:
    folder = services.home.jobs / row.name
    files = {
        rank: folder / "attempts" / str(number) / file
        for number, rank, _, file in view.log_files(row)
        if number == attempt
    }
    return MergedLog(LogTimes(folder, attempt), files)


def place_of(text: str) -> tuple[int, int]:
    rank, _, offset = text.partition(":")
    if not (rank.isdecimal() and offset.isdecimal() and len(text) <= _LONGEST):
        raise UsageError(f"{text[:80]!r} is no place", where="at", hint="use RANK:BYTE")
    return int(rank), int(offset)
