"""The list of jobs, and jobs side by side."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from allranks.errors import UsageError
from allranks.statuses import JobStatus
from allranks.ui import render

# Rows of a list, and of a longer one each time that more are wanted.
_ROWS = 50
_FILTERS = ("status", "experiment", "name", "tag", "metric", "sort", "archived", "parent")
_SORTS = {
    "-created": "newest first",
    "created": "oldest first",
    "name": "name",
    "-duration": "longest first",
    "duration": "shortest first",
}


async def jobs(request: Request) -> Response:
    """Matching jobs; the filters are those of `job list` and stay in the address."""
    given = request.query_params
    wanted: dict[str, Any] = {key: given[key] for key in _FILTERS if given.get(key)}
    if "tag" in wanted:
        wanted["tag"] = wanted["tag"].split()
    if "metric" in wanted:
        wanted["metric"] = wanted["metric"].split()
    limit = _number(given.get("limit"), _ROWS)
    found = await request.state.session.get(
        "jobs", **wanted, limit=limit + 1, metrics="true", children=_flag(given.get("children"))
    )
    return render.page(
        request,
        "jobs.html",
        jobs=found[:limit],
        more=limit + _ROWS if len(found) > limit else None,
        statuses=[str(each) for each in JobStatus],
        sorts=_SORTS,
        filtered=bool(wanted),
    )


async def compare(request: Request) -> Response:
    """What differs between jobs."""
    names = request.query_params.getlist("job")
    if len(names) < 2:
        raise UsageError("choose at least two jobs to compare", hint="tick them in the list")
    found = await request.state.session.get("compare", job=names)
    sections: dict[str, list[Any]] = {}
    for each in found["differences"]:
        sections.setdefault(each["section"], []).append(each)
    return render.page(request, "compare.html", jobs=found["jobs"], sections=sections, names=names)


def _flag(text: str | None) -> str:
    return "true" if text == "true" else ""


def _number(text: str | None, otherwise: int) -> int:
    return max(1, min(int(text), 100_000)) if text and text.isdigit() else otherwise
