"""One job: what it is doing or why it failed, its nodes and ranks, where its time went."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.errors import Conflict, NotFound
from allranks.sdk.jobs.metrics import across_ranks
from allranks.ui import render
from allranks.ui.api import Session
from allranks.ui.pages.failures import culprit, culprit_of, explanation, failed_child
from allranks.ui.pages.graph import graph
from allranks.ui.pages.rank_grid import first_nodes, nodes_of
from allranks.ui.pages.sweep import worth
from allranks.ui.pages.timeline import curves, timeline

if TYPE_CHECKING:
    from allranks.api.jobs import ExplainedStep, PipelineExplanation, ProfileAnswer
    from allranks.api.metrics import MetricSummary, RankRow, ShownJob

# Children of a sweep that the page shows.
_TRIALS = 500
# Ranks in the table of how they go.
_PACES = 16
# The last metrics of a long list are on the page of metrics only.
_METRICS = 12


async def overview(request: Request) -> Response:
    session: Session = request.state.session
    name = request.path_params["name"]
    job = await session.get(routes.show_job, name)

    async def rest() -> str:
        reads = (explanation, failed_child, culprit)
        (explained, failed, stack), metrics, children, axis, paces = await asyncio.gather(
            asyncio.gather(*(read(session, job) for read in reads)),
            _metrics(session, job),
            _below(session, job),
            timeline(session, job),
            _paces(session, job),
        )
        rows = across_ranks(metrics)
        nodes = nodes_of(job)
        return render.text(
            request,
            "overview.html",
            job=job,
            explained=explained,
            failed=failed,
            stack=stack,
            metrics=rows[:_METRICS],
            more_metrics=len(rows) - _METRICS,
            timeline=axis,
            curves=[*curves(job, metrics)],
            nodes=nodes if request.query_params.get("nodes") == "all" else first_nodes(nodes),
            all_nodes=len(nodes),
            paces=paces,
            **children,
        )

    return render.page_in_parts(request, "job.html", rest, tab="overview", job=job)


async def _paces(session: Session, job: ShownJob) -> list[RankRow]:
    """How the ranks of a job that runs go; of many, those that are slow or wait least."""
    if job["type"] != "command" or job["ended_at"] or not job["started_at"] or job["processes"] < 2:
        return []
    table = await session.get(routes.job_ranks, job["name"])
    order = sorted(table["ranks"], key=lambda one: (not one["slow"], one["waiting"] or 0.0))
    return sorted(order[:_PACES], key=lambda one: one["rank"])


async def stacks(request: Request) -> Response:
    """The stacks of all ranks, taken when the button is pressed."""
    session: Session = request.state.session
    name = request.path_params["name"]
    job = await session.get(routes.show_job, name)
    answer = None
    why = ""
    if request.method == "POST" or job["ended_at"] is not None:
        try:
            answer = (await session.call(routes.job_stacks, name)).json()
        except (NotFound, Conflict) as error:
            why = str(error)
    rank = None if job["error"] is None else job["error"]["rank"]
    first = None if answer is None else culprit_of(answer, rank)
    profile: ProfileAnswer | None = None
    no_profile = ""
    try:
        profile = await session.get(routes.show_profile, name)
    except NotFound:
        pass
    except Conflict as error:  # it is too large
        no_profile = f"{error}: {error.hint}"
    flame = [] if profile is None else [file for file in profile["files"] if file.endswith(".svg")]
    return render.page(
        request,
        "stacks.html",
        tab="stacks",
        job=job,
        stacks=answer,
        why=why,
        first=first,
        profile=profile,
        no_profile=no_profile,
        flame=flame[0] if flame else "",
    )


async def _metrics(session: Session, job: ShownJob) -> list[MetricSummary]:
    if not job.get("metrics"):
        return []
    answer = await session.get(routes.metrics_summary, job["name"], shape="false")
    return answer["series"]


async def _below(session: Session, job: ShownJob) -> dict[str, Any]:
    """The trials of a sweep, or the graph of a pipeline and why its steps ran."""
    steps: dict[str, ExplainedStep] = {}
    if job["type"] == "pipeline":
        explained = await session.get(routes.job_explanation, job["name"])
        steps = cast("PipelineExplanation", explained)["steps"]
    trials = job.get("trials", ())
    parameters = list(dict.fromkeys(key for trial in trials for key in trial["parameters"]))
    return {
        "trials": trials[:_TRIALS],
        "more_trials": len(trials) - _TRIALS,
        "parameters": parameters,
        "steps": steps,
        "worth": worth(job),
        "graph": graph(job["steps"]) if job["type"] == "pipeline" else None,
    }
