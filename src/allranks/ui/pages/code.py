"""The code of a job, and how it differs from another job's."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.errors import AllranksError
from allranks.ui import render
from allranks.ui.api import Session, named_job

# Files of a list, bytes of a file and lines of a difference that are shown.
_MOST, _SHOWN, _LINES = 2000, 256 << 10, 2000


class Line(NamedTuple):
    """A line of a difference. ``kind``: added, removed, place (of a part) or same."""

    text: str
    kind: str


async def page(request: Request) -> Response:
    """The files of the code, one of them, or what differs from the job ``against``."""
    session, job = await named_job(request)
    listed = await session.get(routes.job_code, job["name"])
    against = request.query_params.get("against")
    chosen = request.query_params.get("path")
    text = changed = difference = None
    if against:
        changed = await _changed(session, job["name"], against)
    if chosen:
        text = await _text(session, job["name"], chosen)
    if against and chosen:
        difference = _difference(await _text(session, against, chosen), text, against)
    return render.page(
        request,
        "code.html",
        tab="code",
        job=job,
        files=listed[:_MOST],
        more=len(listed) - _MOST,
        chosen=chosen,
        text=text,
        against=against or "",
        changed=changed,
        difference=difference,
    )


async def _changed(session: Session, name: str, against: str) -> list[dict[str, object]]:
    """The files that differ, as `job compare` finds them."""
    comparison = await session.get(routes.compare_jobs, job=[against, name])
    return [
        {"path": difference["name"].removeprefix("file "), "what": difference["values"][-1]}
        for difference in comparison["differences"]
        if difference["section"] == "code" and difference["name"].startswith("file ")
    ]


async def _text(session: Session, job: str, path: str) -> str | None:
    """A file of a job's code; None if it has none of that name."""
    try:
        answer = await session.call(routes.job_code_file, job, path)
    except AllranksError:
        return None
    return answer.content[:_SHOWN].decode(errors="replace")


def _difference(before: str | None, after: str | None, name: str) -> list[Line]:
    was = (before or "").splitlines()
    now = (after or "").splitlines()
    lines = difflib.unified_diff(was, now, name, "this job", lineterm="")
    kinds = {"+": "added", "-": "removed", "@": "place"}
    few = islice(lines, _LINES)
    return [Line(each, kinds.get(each[:1], "same")) for each in few]
