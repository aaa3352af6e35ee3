"""`allranks job list`: filter, sort and choose columns."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.job_names import JobReference
from allranks.cli.output import show
from allranks.cli.parser import positive
from allranks.core.amounts import counted
from allranks.core.job import list_filters as job_query
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.spec.fields.durations import UNITS, seconds_of

if TYPE_CHECKING:
    from allranks.api.jobs import ListedJob

_MOST_DAYS = 36500
# Jobs whose submitters a hint names.
_LOOKED_AT = 200


def _status(text: str) -> str:
    try:
        return job_query.status(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None


def list_jobs_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    status = "only jobs with this status, e.g. Running; repeat"
    add("--status", type=_status, action="append", default=[], metavar="S", help=status)
    add("--experiment", metavar="E", help="only jobs of this experiment")
    name = "part of the name or display name, or a pattern with * and ?"
    add("--name", metavar="PATTERN", help=name)
    tag = "only jobs with this tag, or this value of it; repeat"
    add("--tag", action="append", default=[], metavar="K[=V]", help=tag)
    add("--since", metavar="WHEN", help="submitted since: 2d, 12h, 2026-11-01, 2026-11-01T08:30")
    add("--until", metavar="WHEN", help="submitted up to then (a day is included)")
    metric = "by the last value of a metric, e.g. 'loss<0.5'; repeat"
    add("--metric", action="append", default=[], metavar="COND", help=metric)
    sort = (
        "a column (see --columns), or another metric (best.METRIC: the best in its history) or"
        " parameter; -KEY for descending (-created)"
    )
    add("--sort", default="-created", metavar="KEY", help=sort)
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--by", metavar="USER", help="only jobs that this user submitted")
    whose.add_argument("--mine", action="store_true", help="only jobs that you submitted")
    visit = "only jobs that ended since your last visit of the page"
    add("--since-visit", action="store_true", help=visit)
    columns = f"{', '.join(_CELLS)}, inputs.NAME, tags.KEY, or a metric, parameter or input"
    add("--columns", metavar="C,C,…", help=columns)
    hidden = parser.add_mutually_exclusive_group()
    hidden.add_argument("--archived", action="store_true", help="only archived jobs")
    everything = "include archived jobs, and the trials and steps of other jobs"
    hidden.add_argument("--all", action="store_true", help=everything)
    add("--parent", type=JobReference, metavar="JOB", help="only the trials or steps of this job")
    uses = "only jobs that use this data, model, environment or component"
    add("--uses", metavar="NAME[:VERSION]", help=uses)
    add("--limit", type=positive, default=50, metavar="N", help="the first N (50)")


def list_jobs(options: argparse.Namespace) -> int:
    now = datetime.now().astimezone()
    columns = _columns(options.columns)
    sort = options.sort.removeprefix("-")
    sorted_by = [sort] * (sort not in job_query.ALL_SORTS)
    query = {
        "status": options.status,
        "experiment": options.experiment,
        "name": options.name,
        "tag": options.tag,
        "since": None if options.since is None else _moment(options.since, now, "--since")[0],
        "until": None if options.until is None else _moment(options.until, now, "--until")[1],
        "metric": options.metric,
        "sort": options.sort,
        "archived": "all" if options.all else "only" if options.archived else "no",
        "parent": options.parent,
        "uses": options.uses,
        "by": options.by,
        "mine": "true" if options.mine else None,
        "since_visit": "true" if options.since_visit else None,
        "children": "true" if options.all else None,
        "limit": options.limit,
        "metrics": "true" if options.json or any(map(_is_metric, [*columns, sort])) else None,
    }
    jobs = find_server.ask(routes.list_jobs, **query)
    if options.json:
        show.as_json(jobs)
        return 0
    if not jobs:
        show.talk(_none(options))
        if options.by is not None and not options.quiet:
            show.talk(f"\nhint: {_submitters()}")
        return 0
    if not options.quiet:
        _note_unknown(jobs, columns)
    columns = columns or [*_usual(jobs), *sorted_by]
    head = [_HEADS.get(column, column.removeprefix("metrics.")).upper() for column in columns]
    show.columns(head, [[_cell(job, column) for column in columns] for job in jobs])
    return 0


def _note_unknown(jobs: list[ListedJob], keys: list[str]) -> None:
    """Report columns that no job has: they may be misspelled."""
    for key in dict.fromkeys(filter(_is_metric, keys)):
        name = key.removeprefix("metrics.")
        if not any(name in {**_values(job), **job["metrics"]} for job in jobs):
            from allranks.spec.fields.problems import nearest  # lazy: for a slip alone

            names = {
                *_CELLS,
                *job_query.SORTS,
                *(metric for job in jobs for metric in job["metrics"]),
            }
            near = nearest(name, names)
            none = f"note: no job listed has a metric, parameter or input {name!r}"
            show.talk(none + (f"; {near}" if near else ""))


def _none(options: argparse.Namespace) -> str:
    filters = (
        "status experiment name tag since until metric archived parent uses by mine since_visit"
    )
    if any(getattr(options, word) for word in filters.split()):
        return "no jobs match"
    return "no jobs yet; run one: `allranks run -- echo hello`"


def _submitters() -> str:
    """Whose jobs there are."""
    newest = find_server.ask(routes.list_jobs, archived="all", limit=_LOOKED_AT)
    names = dict.fromkeys(job["created_by"] for job in newest)
    return f"the newest jobs are of {show.several([*names])}" if names else "there are no jobs yet"


def _usual(jobs: list[ListedJob]) -> list[str]:
    """The default columns; the submitter only if there are several."""
    several = len({job["created_by"] for job in jobs}) > 1
    named = any(job["display_name"] != job["name"] for job in jobs)
    tagged = any(job["tags"] for job in jobs)
    columns = ["name", "status", "experiment", *["by"] * several, "ranks", "age", "took"]
    return [*columns, *["display_name"] * named, *["tags"] * tagged]


def _size(job: ListedJob) -> str:
    if job["type"] != "command":
        child = "trial" if job["type"] == "sweep" else "step"
        return counted(job["total_children"], child)
    return str(job["processes"]) if job["nodes"] == 1 else f"{job['processes']} on {job['nodes']}"


def age(job: ListedJob) -> str:
    """How long ago it was created."""
    born = datetime.fromisoformat(job["created_at"])
    return show.seconds((datetime.now(UTC) - born).total_seconds())


def _took(job: ListedJob) -> str:
    return "-" if job["duration"] is None else show.seconds(job["duration"])


def _time(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda job: show.moment(job[key])


def _tags(job: ListedJob) -> str:
    return " ".join(f"{key}={value}" if value else key for key, value in job["tags"].items())


def _plain(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda job: "-" if job[key] is None else str(job[key])


_CELLS: Mapping[str, Callable[[ListedJob], str]] = {
    "name": _plain("name"),
    "display_name": lambda job: "-" if job["display_name"] == job["name"] else job["display_name"],
    "status": _plain("status"),
    "experiment": _plain("experiment_name"),
    "compute": _plain("compute"),
    "by": _plain("created_by"),
    "ranks": _size,
    "nodes": _plain("nodes"),
    "attempts": _plain("attempts"),
    "exit_code": _plain("exit_code"),
    "age": age,
    "took": _took,
    "duration": _took,
    "created": _time("created_at"),
    "started": _time("started_at"),
    "ended": _time("ended_at"),
    "archived": _time("archived_at"),
    "tags": _tags,
}
_HEADS = {"display_name": "display name", "exit_code": "exit code"}


def _columns(text: str | None) -> list[str]:
    """The requested columns. Raises UsageError."""
    if text is None:
        return []
    columns = [word.strip() for word in text.split(",")]
    if not all(column.removeprefix("metrics.") for column in columns):
        hint = f"{', '.join(_CELLS)}, inputs.NAME, tags.KEY, or the name of a metric or parameter"
        raise UsageError("a column has no name", where="--columns", hint=hint)
    return columns


def _is_metric(column: str) -> bool:
    return column not in _CELLS and not column.startswith(("inputs.", "tags."))


def _cell(job: ListedJob, column: str) -> str:
    if column in _CELLS:
        return _CELLS[column](job)
    kind, _, name = column.partition(".")
    if kind in ("inputs", "tags") and name:
        value = (job["inputs"] if kind == "inputs" else job["tags"]).get(name)
        return "-" if value is None else str(value)
    if kind == "best" and name in job.get("best", {}):
        return show.number(job["best"][name])
    name = column.removeprefix("metrics.")
    return show.number(job["metrics"].get(name, _values(job).get(column)))


def _values(job: ListedJob) -> dict[str, Any]:
    """Its parameters, and the inputs that no parameter is named like."""
    return {**job["inputs"], **job.get("parameters", {})}


def _moment(text: str, now: datetime, where: str) -> tuple[float, float]:
    """The begin and end of a time in seconds since the epoch: `2d` is two days ago, a date lasts a
    day. Raises UsageError."""
    try:
        if text[-1:].lower() in UNITS:
            seconds = seconds_of(text)
            if seconds > _MOST_DAYS * UNITS["d"]:
                raise ValueError(text)
            return (now.timestamp() - seconds,) * 2
        begin = datetime.fromisoformat(text)
        # Without a time zone it is local time.
        zoned = begin.astimezone() if begin.tzinfo is None else begin
        after = begin + timedelta(days=1) if len(text) == len("2026-11-01") else begin
        end = after.astimezone() if after.tzinfo is None else after
        if zoned.timestamp() >= 0:
            return zoned.timestamp(), end.timestamp()
    except (OverflowError, ValueError):
        pass
    hint = "as in 2d, 12h, 30m, 2026-11-01 or 2026-11-01T08:30"
    raise UsageError(f"{text!r} is not a time", where=where, hint=hint)
