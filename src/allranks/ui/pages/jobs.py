"""The list of jobs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allranks.api import routes
from allranks.core.job.list_filters import ALL_SORTS
from allranks.core.job.marks import STAR
from allranks.statuses import JobStatus
from allranks.ui import render

# Rows of a list, and of a longer one each time that more are wanted.
_ROWS = 50
# Jobs that the palette offers.
_FOUND = 8
# Metrics by which the list can be ordered, and the prefix of an order by the best value.
_METRICS, _BEST = 20, "best."
_FILTERS = ("status", "experiment", "name", "tag", "metric", "sort", "archived", "parent", "uses")
_NEWEST = "-created"
_SORTS = {
    _NEWEST: "newest first",
    "created": "oldest first",
    "name": "name",
    "-duration": "longest first",
    "duration": "shortest first",
}


async def jobs(request: Request) -> Response:
    """Matching jobs; the filters are those of `job list` and stay in the address."""
    query = request.query_params
    filters: dict[str, Any] = {key: query[key] for key in _FILTERS if query.get(key)}
    if "tag" in filters:
        filters["tag"] = filters["tag"].split()
    if "metric" in filters:
        filters["metric"] = filters["metric"].split()
    limit = _number(query.get("limit"), _ROWS)
    listing = await request.state.session.get(
        routes.list_jobs,
        **filters,
        limit=limit + 1,
        metrics="true",
        children=_flag(query.get("children")),
    )
    starred: list[Any] = []
    if filters.get("sort", _NEWEST) == _NEWEST:
        # They come first, however old they are.
        own = {**filters, "tag": [*filters.get("tag", ()), f"{STAR}=yes"], "limit": _ROWS}
        starred = await request.state.session.get(
            routes.list_jobs, **own, metrics="true", children="true"
        )
    names = {job["name"] for job in starred}
    return render.page(
        request,
        "jobs.html",
        jobs=starred + [job for job in listing[:limit] if job["name"] not in names],
        more=limit + _ROWS if len(listing) > limit else None,
        statuses=[str(JobStatu) for JobStatu in JobStatus],
        sorts={"": _SORTS, **_metric_sorts(starred + listing, query.get("sort", ""))},
        filtered=bool(filters),
        by_metric=filters.get("sort", _NEWEST).removeprefix("-") not in ALL_SORTS,
    )


def _metric_sorts(jobs: list[Any], chosen: str) -> dict[str, dict[str, str]]:
    """Orders by the metrics of the jobs that are shown, and the one that is chosen."""
    several = dict.fromkeys(name for job in jobs for name in job.get("metrics", {}))
    names = [name for name in several if name not in ALL_SORTS][:_METRICS]
    own = chosen.removeprefix("-").removeprefix(_BEST)
    if own not in ("", *ALL_SORTS, *names):
        names.append(own)
    return {
        f"{kind} value": {
            f"{sign}{prefix}{name}": f"{kind} {name}, {text} first"
            for name in names
            for sign, text in (("", "least"), ("-", "greatest"))
        }
        for kind, prefix in (("last", ""), ("best", _BEST))
        if names
    }


async def find(request: Request) -> Response:
    """The newest jobs with a text in their names, for the palette."""
    text = request.query_params.get("text", "")
    listing = await request.state.session.get(
        routes.list_jobs, name=text, limit=_FOUND, children="true"
    )
    return JSONResponse([{"name": job["name"], "status": job["status"]} for job in listing])


def _flag(text: str | None) -> str:
    return "true" if text == "true" else ""


def _number(text: str | None, otherwise: int) -> int:
    return max(1, min(int(text), 100_000)) if text and text.isdigit() else otherwise
