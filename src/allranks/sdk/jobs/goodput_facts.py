"""How a job spent its time, from the server's data."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.api import routes
from allranks.core.insights.checkpoint_interval import held_up
from allranks.core.insights.goodput import Goodput, Trail, goodput
from allranks.core.insights.rehearsal import is_counted
from allranks.events import Event, Kind
from allranks.http_client import Client
from allranks.statuses import JobStatus

if TYPE_CHECKING:
    from allranks.api.jobs import EventAnswer

# Metrics with which scripts report the seconds that a checkpoint takes.
COSTS = ("checkpoint_time", "checkpoint_seconds", "save_time")

Answer = Mapping[str, Any]


class JobTimes(NamedTuple):
    """How a job spent its time. ``cost`` is the seconds per checkpoint, if metrics or state and
    steps show it."""

    name: str
    status: str
    goodput: Goodput
    cost: float | None = None
    events: Sequence[EventAnswer] = ()


def job_times(client: Client, name: str) -> JobTimes:
    """How the job has spent its time so far. Raises NotFound if it does not exist."""
    job = client.ask(routes.show_job, name)
    answers = client.ask(routes.job_events, name)
    events = [event(answer) for answer in answers]
    series = _series(client, job)
    ways = trails(job, series)
    result = goodput(events, time.time(), ways)._replace(stepless=_stepless(job))
    cost = _cost(series)
    if cost is None and ways:
        cost = _cost_by_state(client, job, ways)
    return JobTimes(name, job["status"], result, cost, answers)


def children_of(client: Client, name: str) -> list[str]:
    """The jobs of a sweep or a pipeline; any other job itself. Raises NotFound."""
    job = client.ask(routes.show_job, name)
    if job["type"] == "sweep":
        return [trial["job"] for trial in job["trials"]]
    if job["type"] == "pipeline":
        jobs = [step["job"] for step in job["steps"].values() if step["job"]]
        return [child for each in jobs for child in children_of(client, each)]
    return [name]


def _stepless(job: Answer) -> bool:
    """Whether it ended without a metric or checkpoint that shows training."""
    ended = job["ended_at"] is not None and job["status"] != JobStatus.COMPLETED
    return ended and not job["metrics"] and job["state"]["version"] is None


def _series(client: Client, job: Answer) -> list[Answer]:
    """Those that say what was done anew, if anything was, and what a checkpoint took: there may be
    points by the hundred thousand."""
    if job["metrics"] and job["attempts"] > 1:
        return list(client.ask(routes.job_metrics, job["name"])["series"])
    names = {key.partition("/rank_")[0] for key in job["metrics"]} & {*COSTS}
    answers = (client.ask(routes.job_metrics, job["name"], metric=name) for name in names)
    return [series for answer in answers for series in answer["series"]]


def event(answer: Answer) -> Event:
    """As the record has it."""
    at = datetime.fromisoformat(answer["at"]).timestamp()
    fields = {key: answer[key] for key in ("launch", "attempt", "node", "rank", "data")}
    return Event(Kind(answer["kind"]), at, **fields)


def trails(job: Answer, series: Iterable[Answer]) -> list[Trail]:
    """The steps that ranks told of. Those that were only counted say nothing: of printed metrics
    those whose pattern reads none from the line, of others 0, 1, 2 … in each attempt."""
    by_name = defaultdict(list)
    for each in series:
        steps = tuple((int(step), float(at)) for step, at, _ in each["points"])
        if steps:
            trail = Trail(each["attempt"] or 1, each["name"], each["rank"], steps)
            by_name[trail.name].append(trail)
    specs = job["spec"].get("metrics") or {}
    return [
        trail
        for name, several in by_name.items()
        if not is_counted(name, specs)
        or not (name in specs or all(_from_0([n for n, _ in trail.steps]) for trail in several))
        for trail in several
    ]


def _from_0(steps: Sequence[int]) -> bool:
    return set(steps) == {0} or list(steps) == list(range(len(steps)))


def _cost(series: Iterable[Answer]) -> float | None:
    """The usual one: the first is often slower, and one that meets a full disk far more."""
    costs = [float(value) for s in series if s["name"] in COSTS for _, _, value in s["points"]]
    return median(costs) if costs else None


def _cost_by_state(client: Client, job: Answer, ways: Iterable[Trail]) -> float | None:
    """By the steps in which a version of its state was written."""
    if job["state"]["version"] is None:
        return None
    state = client.ask(routes.show_state, job["state"]["name"])
    written = defaultdict(list)
    for version in state["versions"]:
        if version["job"] == job["name"] and version["written_at"]:
            at = datetime.fromisoformat(version["written_at"]).timestamp()
            written[version["attempt"]].append(at)
    delays = []
    for attempt, times in written.items():
        mine = (way.steps for way in ways if way.attempt == attempt)
        delays += held_up(max(mine, key=len, default=()), times)
    return median(delays) if delays else None
