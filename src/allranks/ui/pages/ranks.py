"""Many ranks side by side: who is late, and a heat map of any metric or resource."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.errors import NotFound
from allranks.ui import render
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.metrics import (
        MetricsSummary,
        RanksAnswer,
        RanksOfAttempt,
        RankStanding,
        ShownJob,
    )

# Ranks in the table; the heat map has all.
_ROWS = 12
# Keys of a load that are no series, or never change.
_NO_USE = {"node", "at", "node_load", "gpus", "ranks", "now", "rank", "gpu"}
# Metrics of which more is worse: who has more is late.
_STEP_TIME = re.compile(r"step.*time|time.*step|batch.*time")
_TIME = re.compile(r"time|second|latency|duration|wait", re.IGNORECASE)


class Choice(NamedTuple):
    """A metric or resource that ranks, GPUs or nodes have."""

    kind: str
    name: str


async def page(request: Request) -> Response:
    session: Session = request.state.session
    query = request.query_params
    job = await session.get(routes.show_job, request.path_params["name"])
    summary = await session.get(routes.metrics_summary, job["name"], shape="false")
    choices = _choices(summary, job)
    choice = Choice(query.get("kind", "metric"), query.get("metric", ""))
    chosen = choice if choice in choices else _usual(choices)

    async def compared() -> str:
        if chosen is None:
            return ""
        return await _compared(request, job, choices, chosen)

    return render.page_in_parts(
        request,
        "ranks.html",
        compared,
        tab="ranks",
        job=job,
        choices=choices,
        of_one=bool(summary["series"]) and not any(choice.kind == "metric" for choice in choices),
        chosen=chosen,
        attempts=range(1, job["attempts"] + 1),
    )


async def _compared(request: Request, job: ShownJob, choices: list[Choice], chosen: Choice) -> str:
    """The part of the page that takes a second for hundreds of ranks."""
    session: Session = request.state.session
    # The same question as the heat map's, so that the server computes once.
    query = {"kind": chosen.kind, "metric": chosen.name, "heat": "true"}
    answer: RanksAnswer = {"attempts": []}
    with suppress(NotFound):
        answer = await session.get(routes.metrics_of_ranks, job["name"], **query)
    shown = _of_attempt(answer, request.query_params.get("attempt", ""))
    if shown is None:
        return '<p class="empty">It has no values in this attempt.</p>'
    return render.text(
        request,
        "late_ranks.html",
        job=job,
        choices=choices,
        chosen=chosen,
        is_time=bool(_TIME.search(chosen.name)),
        shown=shown,
        rows=_late(shown, chosen),
    )


def _of_attempt(answer: RanksAnswer, attempt: str) -> RanksOfAttempt | None:
    several = [one for one in answer["attempts"] if attempt in ("", str(one["attempt"]))]
    return several[-1] if several else None


def _choices(summary: MetricsSummary, job: ShownJob) -> list[Choice]:
    """What several ranks, GPUs or nodes have; metrics first."""
    counts = Counter((series["name"], series["attempt"]) for series in summary["series"])
    metrics = {Choice("metric", name): None for (name, _), count in counts.items() if count > 1}
    members: Counter[str] = Counter()
    for node in job.get("load", ()):
        for part in (*node["gpus"], *node["ranks"]):
            members.update(part.keys())
        members.update(node.keys())
    names = (name for name, count in members.items() if count > 1 and _is_use(name))
    return [*metrics, *(Choice("resource", name) for name in names)]


def _is_use(name: str) -> bool:
    return name not in _NO_USE and not name.endswith(("_total", "_limit"))


def _usual(choices: list[Choice]) -> Choice | None:
    """The time of a step, if there is one."""
    times = [choice for choice in choices if _STEP_TIME.search(choice.name)]
    return next(iter(times + choices), None)


def _late(shown: RanksOfAttempt, chosen: Choice) -> list[RankStanding]:
    """Those that are late most; of what is no time, those that differ most."""
    late = bool(_TIME.search(chosen.name))

    def size(track: RankStanding) -> float:
        return track["late"] * max(track["difference"], 0.0) if late else abs(track["difference"])

    standing = [
        track for track in shown["tracks"] if track["outlier"] or (late and track["longest"])
    ]
    return sorted(standing, key=size, reverse=True)[:_ROWS]
