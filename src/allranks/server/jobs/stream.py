"""What streams of jobs have in common: the request, output read piece by piece, lines of JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from allranks.server.http.request_limits import Count, Number
from allranks.server.jobs import view
from allranks.settings import Home
from allranks.store.files.logs import Logs
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api.jobs import JobLine, LogLine

# Seconds without news after which a viewer gets an empty line, as a heartbeat.
BEAT = 5.0


class StreamRequest(BaseModel):
    """``positions`` ({"1/0": 4096}: attempt/rank, bytes) are the bytes the viewer already has;
    ``ranks`` and ``attempts`` (-1: the newest) filter; with ``tail``, output so far of a rank
    that ``positions`` does not name begins with its last lines. Without ``follow`` the stream ends
    after the existing output. Without ``logs`` the output of trials is left out."""

    positions: dict[str, Count] | None = None
    ranks: list[Number] | None = None
    attempts: list[Number] | None = None
    tail: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    follow: bool = True
    logs: bool = True


def read_logs(
    home: Home, row: JobRow, positions: dict[str, int], request: StreamRequest
) -> list[LogLine]:
    """The next piece of each rank's output; advances ``positions``."""
    logs = Logs(home.jobs / row.name)
    lines: list[LogLine] = []
    for attempt, rank, node, file in view.log_files(row):
        newest = attempt - row.record.attempt - 1  # -1 is the newest, -2 the one before
        ranks, attempts = request.ranks, request.attempts
        if ranks is not None and rank not in ranks:
            continue
        if attempts is not None and attempt not in attempts and newest not in attempts:
            continue
        key = f"{attempt}/{rank}"
        if request.tail is not None and key not in positions:
            positions[key] = logs.offset_of_last(attempt, file, request.tail)
        offset = logs.kept_from(attempt, file, positions.get(key, 0))
        data = logs.read(attempt, file, offset)
        if data:
            positions[key] = offset + len(data)
            lines.append(
                {
                    "log": data.decode(errors="surrogateescape"),
                    "attempt": attempt,
                    "rank": rank,
                    "node": node,
                    "offset": positions[key],
                }
            )
    return lines


def line(data: LogLine | JobLine) -> bytes:
    """A line of JSON."""
    return json.dumps(data).encode() + b"\n"
