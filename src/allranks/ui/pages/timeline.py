"""One time axis of a job: what it did, its attempts, and marks that lead to what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.concurrency import run_in_threadpool

from allranks.api import routes
from allranks.errors import AllranksError
from allranks.events import Event, Kind
from allranks.sdk.jobs.goodput_facts import JobTimes, job_times
from allranks.sdk.jobs.goodput_facts import event as event_of
from allranks.statuses import Reason
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.metrics import MetricSummary, ShownJob

# Places on the axis; marks of a kind that are drawn.
_WIDE, _MARKS = 1000, 60
# Lanes of metrics; resources that have one, of nodes and of GPUs.
_METRICS = 4
_OF_NODES, _OF_GPUS = ("cpu", "memory"), ("gpu_load", "gpu_memory")
_NO_FAILURES = (Reason.DONE, Reason.CANCELED, Reason.PEER_FAILED, Reason.PREEMPTED)


class Mark(NamedTuple):
    """Something that happened at a moment, in seconds since the epoch, and the page about it."""

    kind: str
    moment: float
    text: str
    page: str


class Lane(NamedTuple):
    """Marks of a kind with their places; ``total``: of all, also those that are not drawn."""

    kind: str
    total: int
    marks: list[tuple[float, Mark]]


async def timeline(session: Session, job: ShownJob) -> dict[str, Any] | None:
    """None for a job that has no time yet."""
    if job["type"] != "command":
        return None
    try:
        times = await run_in_threadpool(_times, session, job["name"])
        written = await _checkpoints(session, job)
    except AllranksError:
        return None
    spans = times.goodput.spans
    if not spans or spans[-1].end <= spans[0].begin:
        return None
    begin, whole = spans[0].begin, spans[-1].end - spans[0].begin

    def place(moment: float) -> float:
        return round(min(_WIDE, max(0, _WIDE * (moment - begin) / whole)), 2)

    activities = [
        {
            "activity": str(span.activity),
            "attempt": span.attempt,
            "seconds": span.seconds,
            "at": place(span.begin),
            "width": round(place(span.end) - place(span.begin), 2),
        }
        for span in spans
    ]
    marks = [*written, *_marks(job, [*map(event_of, times.events)])]
    return {
        "begin": begin,
        "seconds": whole,
        "activities": activities,
        "attempts": [
            (number, place(first.begin), round(place(last.end) - place(first.begin), 2))
            for number, first, last in _attempts(spans)
        ],
        "lanes": [
            _lane(kind, [(place(mark.moment), mark) for mark in marks if mark.kind == kind])
            for kind in dict.fromkeys(mark.kind for mark in marks)
        ],
    }


def _times(session: Session, name: str) -> JobTimes:
    with session.client() as client:
        return job_times(client, name)


def _attempts(spans: Iterable[Any]) -> Iterator[tuple[int, Any, Any]]:
    """Of each attempt its number, first and last span."""
    by_number: dict[int, list[Any]] = {}
    for span in spans:
        by_number.setdefault(span.attempt, []).append(span)
    for number, several in by_number.items():
        yield number, several[0], several[-1]


def _lane(kind: str, marks: list[tuple[float, Mark]]) -> Lane:
    every = -(-len(marks) // _MARKS)
    # The last ones are those that people look for.
    return Lane(kind, len(marks), marks[::-1][::every][::-1])


async def _checkpoints(session: Session, job: ShownJob) -> list[Mark]:
    """The versions of its state that the job wrote."""
    if job["state"]["version"] is None:
        return []
    name = quote(job["state"]["name"], safe="")
    state = await session.get(routes.show_state, job["state"]["name"])
    return [
        Mark(
            "checkpoint",
            datetime.fromisoformat(version["written_at"]).timestamp(),
            f"checkpoint {version['version']}",
            f"/ui/assets/states/{name}",
        )
        for version in state["versions"]
        if version["job"] == job["name"] and version["written_at"]
    ]


def _marks(job: ShownJob, events: Sequence[Event]) -> Iterator[Mark]:
    """The first failure of each attempt, restarts and evictions."""
    page = f"/ui/jobs/{quote(job['name'], safe='')}"
    failed: set[int] = set()
    for event in events:
        data = event.data
        reason = data.get("reason")
        if event.attempt not in failed and _is_failure(event):
            failed.add(event.attempt)
            rank = event.rank if event.rank is not None else "all"
            query = urlencode({"rank": rank, "attempt": event.attempt})
            text = str(data.get("message") or data.get("why") or reason)
            moment = float(data.get("failed_at") or data.get("heard") or event.at)
            yield Mark("failure", moment, text[:200], f"{page}/logs?{query}")
        elif event.kind is Kind.CLOSING and reason == Reason.PREEMPTED:
            text = f"attempt {event.attempt} was evicted"
            yield Mark("eviction", event.at, text, f"{page}/details#events")
        elif event.kind in (Kind.RELAUNCHED, Kind.REGROUPED):
            query = urlencode({"rank": "all", "attempt": event.attempt + 1})
            text = f"attempt {event.attempt + 1} begins"
            yield Mark("restart", event.at, text, f"{page}/logs?{query}")


def _is_failure(event: Event) -> bool:
    if event.kind is Kind.LOST:
        return True
    reason = event.data.get("reason")
    return event.kind in (Kind.ENDED, Kind.CLOSING) and reason not in (None, *_NO_FAILURES)


def curves(job: ShownJob, metrics: Sequence[MetricSummary]) -> Iterator[tuple[str, str, int]]:
    """Kind, name and number of series of what has a curve on the same axis."""
    names = list(dict.fromkeys(series["name"] for series in metrics))
    for name in names[:_METRICS]:
        ranks = {series["rank"] for series in metrics if series["name"] == name}
        yield "metric", name, len(ranks)
    load = job.get("load", [])
    for name in _OF_NODES:
        if any(name in node for node in load):
            yield "resource", name, len(load)
    gpus = [gpu for node in load for gpu in node["gpus"]]
    for name in _OF_GPUS:
        if any(name in gpu for gpu in gpus):
            yield "resource", name, len(gpus)
