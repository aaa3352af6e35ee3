"""The details of a job: its file, what it came from, what each rank gets, and its events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.core.amounts import ranges
from allranks.core.job.rank_variables import Summary, summarize
from allranks.events import Kind
from allranks.spec.fields.plain_words import written
from allranks.ui import render
from allranks.ui.api import Session, named_job

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import EventAnswer, PlanAnswer
    from allranks.api.metrics import ShownJob

# The most ranks of a job whose variables are shown at once; of more, so many at a time, on demand.
_PLANNED, _PLANNED_PART = 16, 64
# Events of a page.
_EVENTS = 50
# Prefixes of properties that allranks records: nobody writes them in a job file.
_RECORDED = ("allranks.", "azureml.git.", "mlflow.source.")
# Keys of an event's data that are sentences.
_SENTENCES = ("message", "why")
# Keys that are not shown: they mean nothing to a reader, or are too long; and times.
_HIDDEN = ("about", "digest", "key", "pid", "facts", "tail", "hung", "over", "passing")
_TIMES = ("ended_at", "failed_at", "heard", "since", "end", "until")

# What happened, by the kind of an event.
EVENT_TEXTS: Mapping[Kind, str] = {
    Kind.CREATED: "the job is submitted",
    Kind.SUBMITTED: "the compute has it",
    Kind.REFUSED: "the compute refuses it",
    Kind.SEEN: "state on the compute",
    Kind.GO: "all nodes are ready: go",
    Kind.CLOSING: "the attempt ends",
    Kind.STOPPING: "the compute is to stop the nodes",
    Kind.REGROUPED: "the next attempt begins, on the same nodes",
    Kind.RELAUNCHED: "the next attempt begins, on new nodes",
    Kind.FINISHED: "the job has ended",
    Kind.CANCEL_ASKED: "a cancel is requested",
    Kind.LOST: "a node is lost",
    Kind.PREEMPT_ASKED: "a preemption is requested",
    Kind.KILL_ASKED: "a rank is to be killed",
    Kind.RELEASED: "the hold ends",
    Kind.ENTERED: "somebody enters",
    Kind.NOTICE: "notice",
    Kind.RESUMED: "the job goes on",
    Kind.HELLO: "the agent calls",
    Kind.READY: "the node is ready",
    Kind.STARTED: "ranks have started",
    Kind.RANK_ENDED: "a rank has ended",
    Kind.TAKEN: "the node is about to be taken away",
    Kind.WORKED: "the ranks are done",
    Kind.HELD: "the failure is held",
    Kind.ENDED: "the attempt has ended here",
    Kind.DRAINED: "logs and outputs are sent",
    Kind.BYE: "the agent leaves",
    Kind.NOTE: "note",
}


class ShownEvent(NamedTuple):
    """``after``: seconds since the job's submission; ``place``: attempt, nodes and rank."""

    id: int
    at: str
    after: float
    what: str
    place: str
    detail: str


async def page(request: Request) -> Response:
    """The page of a job's details."""
    session, job = await named_job(request)
    query = request.query_params
    events = await session.get(routes.job_events, job["name"])
    before = _number(query.get("before", ""), len(events) and events[-1]["id"] + 1)
    # In threads: thousands of events and a pipeline of hundreds of steps take up to a second.
    until = [event for event in events if event["id"] < before]
    shown = await asyncio.to_thread(shown_events, until, job)
    file = await asyncio.to_thread(job_file, job["spec"])
    plan = ranks = None
    first = _number(query.get("ranks", ""), 0)
    if job["type"] == "command" and (job["processes"] <= _PLANNED or "ranks" in query):
        plan, ranks = await _plan(session, job, first)
    return render.page(
        request,
        "details.html",
        tab="details",
        job=job,
        inputs=inputs_of(job["spec"]),
        plan=plan,
        ranks=ranks,
        first=first,
        part=_PLANNED_PART,
        job_file=file,
        events=shown[-_EVENTS:],
        earlier=len(shown) - _EVENTS,
    )


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else default


async def _plan(session: Session, job: ShownJob, first: int) -> tuple[PlanAnswer, Summary]:
    """What some ranks get, from number ``first``. The job's first and last rank tell which
    variables differ."""
    plans = await asyncio.gather(
        session.get(routes.job_plan, job["name"], first=first, most=_PLANNED_PART),
        session.get(routes.job_plan, job["name"], most=1),
        session.get(routes.job_plan, job["name"], first=max(0, job["processes"] - 1), most=1),
    )
    ranks = summarize([rank for plan in plans for rank in plan["ranks"]])
    return plans[0], ranks._replace(rows=ranks.rows[: len(plans[0]["ranks"])])


def inputs_of(spec: Document) -> dict[str, tuple[str, str]]:
    """What the job reads, by name: as written, and its page if it is an asset or another job's."""
    inputs = {}
    for name, value in (spec.get("inputs") or {}).items():
        path = str(value.get("path", "")) if isinstance(value, Mapping) else str(value)
        kind = value.get("type", "") if isinstance(value, Mapping) else ""
        page = ""
        if path.startswith("azureml:") and "/" not in path:
            assets = "models" if str(kind).endswith("_model") else "data"
            page = f"/ui/assets/{assets}/{quote(path.removeprefix('azureml:'), safe='')}"
        inputs[name] = (path, page)
    return inputs


async def as_json(request: Request) -> Response:
    """The job as it was submitted, or all events, as the API has them."""
    session: Session = request.state.session
    name = request.path_params["name"]
    if request.url.path.endswith("/events.json"):
        data: Any = await session.get(routes.job_events, name)
    else:
        data = (await session.get(routes.show_job, name))["spec"]
    return Response(json.dumps(data, indent=2), media_type="application/json")


def job_file(spec: Document) -> str:
    """The job as a file that its submitter might have written."""
    properties = (spec.get("properties") or {}).items()
    own = {key: value for key, value in properties if not key.startswith(_RECORDED)}
    rest = {key: value for key, value in spec.items() if key != "properties"}
    return written({**rest, "properties": own} if own else rest)


def shown_events(events: Iterable[EventAnswer], job: ShownJob) -> list[ShownEvent]:
    """Events in words. Consecutive ones that differ only in the node, or in the rank of a node, are
    one."""

    def same(event: EventAnswer) -> tuple[Any, ...]:
        alone = event["id"] if event["node"] is None else None
        node = None if event["rank"] is None else event["node"]
        detail = "; ".join(_details(event["data"]))
        return event["kind"], event["attempt"], detail, alone, node

    shown = []
    begin = datetime.fromisoformat(job["created_at"])
    for (kind, attempt, detail, *_), group in groupby(events, same):
        run = [*group]
        parts = [
            _spans("attempt", {attempt} if job["attempts"] > 1 else ()),
            _spans("node", (event["node"] for event in run)),
            _spans("rank", (event["rank"] for event in run)),
        ]
        at = run[0]["at"]
        place = ", ".join(filter(None, parts))
        after = (datetime.fromisoformat(at) - begin).total_seconds()
        shown.append(ShownEvent(run[0]["id"], at, after, EVENT_TEXTS[Kind(kind)], place, detail))
    return shown


def _details(data: Mapping[str, Any]) -> Iterator[str]:
    """The data of an event in words, its sentences first."""
    rest = {key: value for key, value in data.items() if key not in _SENTENCES + _HIDDEN + _TIMES}
    for key, value in {**{key: data.get(key) for key in _SENTENCES}, **rest}.items():
        name = key.replace("_", " ")
        if value is False or value in (None, "", [], {}):
            continue
        if key in _SENTENCES:
            yield str(value)
        elif key == "error" and isinstance(value, Mapping):
            yield str(value.get("message"))
        elif key == "ranks" and isinstance(value, list) and all(type(n) is int for n in value):
            yield _spans("rank", value)
        elif isinstance(value, Mapping):
            inner = [f"{k} {v}" for k, v in value.items() if isinstance(v, str | int | float)]
            yield f"{name}: {', '.join(inner)}"
        elif isinstance(value, list):
            yield f"{name} {', '.join(map(str, value))}"
        else:
            yield name if value is True else f"{name} {value}"


def _spans(thing: str, numbers: Iterable[int | None]) -> str:
    """``ranks 0–2, 7`` of 7, 0, 2, 1; empty without numbers."""
    distinct = sorted({number for number in numbers if number is not None})
    return f"{thing}{'s' if len(distinct) > 1 else ''} {ranges(distinct)}" if distinct else ""
