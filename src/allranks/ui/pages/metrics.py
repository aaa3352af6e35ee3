"""The charts of a job: its metrics, and what its nodes and GPUs did at the same time."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allranks.api import routes
from allranks.errors import UsageError
from allranks.ui import render
from allranks.ui.api import Session, named_job
from allranks.ui.pages.sweep import even

# Points of a series that a chart draws; zooming in asks for those between.
_POINTS = 4000


async def page(request: Request) -> Response:
    session, job = await named_job(request)
    summary = await session.get(routes.metrics_summary, job["name"], shape="false")
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
    return await _passed(request, routes.job_metrics, metric=query.get("metric"), **span)


async def resources(request: Request) -> Response:
    """What the nodes used, all or of a time span, as the API has it."""
    query = request.query_params
    return await _passed(
        request, routes.job_resources, begin=query.get("begin"), end=query.get("end")
    )


async def ranks(request: Request) -> Response:
    """One metric or resource of all ranks, as the API has it."""
    session: Session = request.state.session
    keys = ("metric", "kind", "attempt", "most", "begin", "end", "low", "high", "heat")
    query = {key: request.query_params.get(key) for key in keys}
    answer = await session.call(routes.metrics_of_ranks, request.path_params["name"], **query)
    return Response(answer.content, media_type="application/json")


async def trials(request: Request) -> Response:
    """The trials of a sweep with their parameters and values, in the order of their numbers."""
    _, job = await named_job(request)
    rows = sorted(job.get("trials", ()), key=lambda each: each["number"])
    answer = {"objective": job.get("objective"), "trials": rows, "even": even(job)}
    return JSONResponse(answer)


async def _passed(request: Request, route: routes.Route[Any], **query: str | None) -> Response:
    most = request.query_params.get("most", str(_POINTS))
    if most == "all":
        most = ""
    elif not most.isdigit():
        raise UsageError(f"{most[:80]!r} is not a number of points", where="most")
    session: Session = request.state.session
    answer = await session.call(route, request.path_params["name"], most=most, **query)
    return Response(answer.content, media_type="application/json")
