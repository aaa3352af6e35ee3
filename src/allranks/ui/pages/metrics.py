"""The charts of a job: its metrics, and what its nodes and GPUs did at the same time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allranks.errors import UsageError
from allranks.ui import render
from allranks.ui.api import Session, job_path
from allranks.ui.pages.sweep import even

if TYPE_CHECKING:
    from allranks.api.metrics import MetricsSummary, ShownJob

# Points of a series that a chart draws; zooming in asks for those between.
_POINTS = 4000


async def page(request: Request) -> Response:
    session: Session = request.state.session
    job: ShownJob = await session.get(job_path(request.path_params["name"]))
    path = job_path(job["name"], "metrics/summary")
    summary: MetricsSummary = await session.get(path, shape="false")
    names = list(dict.fromkeys(each["name"] for each in summary["series"]))
    ranks = sorted({each["rank"] for each in summary["series"] if each["rank"] is not None})
    # By metric, how many ranks have it: of many, their mean and range is drawn.
    members = {
        (series["name"], series["rank"])
        for series in summary["series"]
        if series["rank"] is not None
    }
    counts = Counter(name for name, _ in members)
    return render.page(
        request,
        "metrics.html",
        tab="metrics",
        job=job,
        names=names,
        ranks=ranks,
        counts={name: count for name, count in counts.items() if count > 1},
    )


async def points(request: Request) -> Response:
    """The points of one metric, all or of a time span, as the API has them."""
    query = request.query_params
    span = {"begin": query.get("begin"), "end": query.get("end")}
    return await _passed(request, "metrics", metric=query.get("metric"), **span)


async def resources(request: Request) -> Response:
    """What the nodes used, all or of a time span, as the API has it."""
    query = request.query_params
    return await _passed(request, "resources", begin=query.get("begin"), end=query.get("end"))


async def ranks(request: Request) -> Response:
    """One metric or resource of all ranks, as the API has it."""
    session: Session = request.state.session
    path = job_path(request.path_params["name"], "metrics/ranks")
    keys = ("metric", "kind", "attempt", "most", "begin", "end", "low", "high", "heat")
    query = {key: request.query_params.get(key) for key in keys}
    answer = await session.call("GET", path, **query)
    return Response(answer.content, media_type="application/json")


async def trials(request: Request) -> Response:
    """The trials of a sweep with their parameters and values, in the order of their numbers."""
    session: Session = request.state.session
    job: ShownJob = await session.get(job_path(request.path_params["name"]))
    rows = sorted(job.get("trials", ()), key=lambda each: each["number"])
    answer = {"objective": job.get("objective"), "trials": rows, "even": even(job)}
    return JSONResponse(answer)


async def _passed(request: Request, what: str, **query: str | None) -> Response:
    most = request.query_params.get("most", str(_POINTS))
    if most == "all":
        most = ""
    elif not most.isdigit():
        raise UsageError(f"{most[:80]!r} is not a number of points", where="most")
    session: Session = request.state.session
    path = job_path(request.path_params["name"], what)
    answer = await session.call("GET", path, most=most or None, **query)
    return Response(answer.content, media_type="application/json")
