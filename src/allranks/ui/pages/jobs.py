"""The list of jobs, and above it what runs, waits and failed since the reader's last visit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from allranks.api import routes
from allranks.core.job.list_filters import ALL_SORTS
from allranks.core.job.marks import STAR
from allranks.statuses import TERMINAL, JobStatus
from allranks.ui import render
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.jobs import ListedJob

# Rows of a list, and of a longer one each time that more are wanted.
_ROWS = 50
# Jobs that the palette offers, and of each kind above the list.
_FOUND, _NEWS = 8, 4
# Metrics by which the list can be ordered, and the prefix of an order by the best value.
_METRICS, _BEST = 20, "best."
_FILTERS = ("experiment", "name", "sort", "archived", "parent", "uses", "by", "mine", "since_visit")
_SEVERAL = ("tag", "metric")
_NEWEST = "-created"
_SORTS = {
    _NEWEST: "newest first",
    "created": "oldest first",
    "name": "name",
    "-duration": "longest first",
    "duration": "shortest first",
}
# Columns that may be added, with their keys in a line of the list; the cookie that keeps those that
# the reader has chosen, how many, and its days.
_COLUMNS = {"by": "created_by", "duration": "duration", "experiment": "experiment_name"}
_COLUMNS |= {"compute": "compute", "attempts": "attempts", "exit_code": "exit_code"}
_COOKIE, _MOST_COLUMNS, _DAYS = "allranks_columns", 8, 365
_RUNS = (JobStatus.RUNNING, JobStatus.FINALIZING)
_WAITS = tuple(status for status in JobStatus if status not in (*_RUNS, *TERMINAL))


class News(NamedTuple):
    """Some of the reader's jobs, ``more`` than them, and the filters that list all."""

    title: str
    jobs: list[ListedJob]
    more: bool
    filters: dict[str, Any]


async def jobs(request: Request) -> Response:
    """Matching jobs; the filters are those of `job list` and stay in the address."""
    query = request.query_params
    session: Session = request.state.session
    filters: dict[str, Any] = {key: query[key] for key in _FILTERS if query.get(key)}
    filters |= {key: query[key].split() for key in _SEVERAL if query.get(key)}
    if statuses := [status for status in query.getlist("status") if status]:
        filters["status"] = statuses
    limit = _number(query.get("limit"), _ROWS)
    listing, starred, news = await asyncio.gather(
        session.get(
            routes.list_jobs,
            **filters,
            limit=limit + 1,
            metrics="true",
            children=_flag(query.get("children")),
        ),
        _starred(session, filters),
        _no_news() if filters else _news(session),
    )
    names = {job["name"] for job in starred}
    shown = starred + [job for job in listing[:limit] if job["name"] not in names]
    columns = _columns(request, shown)
    answer = render.page(
        request,
        "jobs.html",
        jobs=shown,
        more=limit + _ROWS if len(listing) > limit else None,
        news=news,
        statuses=[*map(str, JobStatus)],
        chosen_statuses=filters.get("status", []),
        sorts={"": _SORTS, **_metric_sorts(shown, query.get("sort", ""))},
        filtered=bool(filters),
        by_metric=filters.get("sort", _NEWEST).removeprefix("-") not in ALL_SORTS,
        columns=columns,
        choices=_choices(shown, columns),
        cell=_cell,
        builtin=_COLUMNS,
        of_best=_BEST,
    )
    if "column" in query:
        kept = urlencode({"column": columns}, doseq=True)
        seconds = _DAYS * 86400
        answer.set_cookie(_COOKIE, kept, seconds, path="/ui", httponly=True, samesite="lax")
    return answer


async def _starred(session: Session, filters: Mapping[str, Any]) -> list[Any]:
    """Among the newest they come first, however old they are."""
    if filters.get("sort", _NEWEST) != _NEWEST:
        return []
    own = {**filters, "tag": [*filters.get("tag", ()), f"{STAR}=yes"], "limit": _ROWS}
    return await session.get(routes.list_jobs, **own, metrics="true", children="true")


async def _no_news() -> list[News]:
    return []


async def _news(session: Session) -> list[News]:
    """What the reader came for, of their own jobs."""
    visit = (await session.call(routes.note_visit)).json()
    since = " since your last visit" if visit["before"] else ""
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        (f"Failed{since}", {"status": [str(JobStatus.FAILED)], "since_visit": "true"}),
        ("Running", {"status": [*map(str, _RUNS)]}),
        ("Waiting", {"status": [*map(str, _WAITS)]}),
    )
    own = [(title, {"mine": "true", **filters}) for title, filters in kinds]
    listed = await asyncio.gather(
        *(
            session.get(routes.list_jobs, **filters, limit=_NEWS + 1, metrics="true")
            for _, filters in own
        )
    )
    return [
        News(title, some[:_NEWS], len(some) > _NEWS, filters)
        for (title, filters), some in zip(own, listed, strict=True)
        if some
    ]


def _columns(request: Request, shown: list[ListedJob]) -> list[str]:
    """The columns that the address has, or else the reader's choice before. Without one, who
    submitted a job where several people did."""
    chosen = request.query_params.getlist("column")
    if not chosen and (kept := request.cookies.get(_COOKIE)) is not None:
        chosen = QueryParams(kept).getlist("column")
    elif not chosen and len({job.get("created_by") for job in shown}) > 1:
        chosen = ["by"]
    return [name for name in dict.fromkeys(chosen) if name][:_MOST_COLUMNS]


def _choices(shown: list[ListedJob], columns: Iterable[str]) -> list[str]:
    """What may be a column: of metrics and parameters those of the jobs that are shown."""
    metrics = dict.fromkeys(name for job in shown for name in job.get("metrics", {}))
    named = dict.fromkeys(name for job in shown for name in _values(job))
    some = [*[*metrics][:_METRICS], *[*named][:_METRICS]]
    return [*dict.fromkeys((*_COLUMNS, *some, *columns))]


def _cell(job: Mapping[str, Any], column: str) -> Any:
    if column in _COLUMNS:
        return job.get(_COLUMNS[column])
    return job.get("metrics", {}).get(column, _values(job).get(column))


def _values(job: Mapping[str, Any]) -> dict[str, Any]:
    """Its parameters, and the inputs that no parameter is named like."""
    return {**job.get("inputs", {}), **job.get("parameters", {})}


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
