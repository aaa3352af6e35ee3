"""`allranks job metrics`: metrics as a table, as points, or as they arrive."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.output.failure import metric_notes
from allranks.errors import NotFound
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.metrics import by_name, news

if TYPE_CHECKING:
    from allranks.api.jobs import JobRecord
    from allranks.api.metrics import MetricSeries, MetricSummary


def metrics_options(parser: argparse.ArgumentParser) -> None:
    several = "a job: its name, the beginning of it, or - for the newest; several side by side"
    job_argument(parser, nargs="+", help=several)
    add = parser.add_argument
    add("--name", dest="metric", metavar="M", help="print the points of this metric")
    add("--attempt", type=int, metavar="A", help="only of this attempt (all)")
    add("--follow", action="store_true", help="print points as they arrive, until the job ends")


def metrics(options: argparse.Namespace) -> int:
    """A line per metric, or the points of one; as JSON all points."""
    names = list(dict.fromkeys(options.names))
    if len(names) > 1:
        from allranks.cli.job.compare import metrics_of  # lazy: usually one job is given

        return metrics_of(names, options)
    options.name = names[0]
    if options.follow:
        return _follow(options)
    if not options.json and options.metric is None:
        return _table(options)
    filters = {"metric": options.metric, "attempt": options.attempt}
    series = find_server.ask(routes.job_metrics, options.name, **filters)["series"]
    if not series:
        _hold_to_attempt(options)
    if not series and options.metric is not None:
        raise _unknown(options)
    points = by_name(series)
    if options.json:
        show.as_json(points)
        return 0
    several = len(points) > 1
    rows = [
        (
            *([name] if several else []),
            str(point["step"]),
            _time(point["timestamp"]),
            show.number(value),
        )
        for name, all_of_it in points.items()
        for point in all_of_it
        for value in [point["value"]]
    ]
    show.columns((*(["METRIC"] if several else []), "STEP", "TIME", "VALUE"), rows)
    return 0


def _table(options: argparse.Namespace) -> int:
    with find_server.connect() as client:
        series: list[MetricSummary] = client.ask(routes.metrics_summary, options.name)["series"]
        job = client.ask(routes.show_job, options.name)
    if options.attempt is not None:
        series = [each for each in series if each["attempt"] == options.attempt]
    if not series:
        _hold_to_attempt(options)
        show.talk(_none(job, options))
        return 0
    again = len({each["attempt"] for each in series}) > 1
    rows = [
        (
            each["key"] + (f" (attempt {each['attempt']})" if again else ""),
            show.number(each["last"][2]),
            str(each["last"][0]),
            show.number(each["min"]),
            show.number(each["max"]),
            str(each["length"]),
            show.sparkline(each["shape"]),
        )
        for each in series
    ]
    show.columns(("METRIC", "LAST", "STEP", "MIN", "MAX", "POINTS", ""), rows)
    # In JSON what is not finite is text.
    shown = ((one["key"], (one["last"][2], *one["shape"])) for one in series)
    if odd := sorted({name for name, values in shown if any(isinstance(v, str) for v in values)}):
        show.talk(f"note: MIN and MAX leave out what is nan or infinite: {', '.join(odd)}")
    return 0


def _follow(options: argparse.Namespace) -> int:
    """A line for each point, of all metrics or of one."""
    has_points = False
    for several in news(find_server.connect, options.name):
        chosen = (each for each in several if _matches(each, options))
        rows = [(name, point) for name, points in by_name(chosen).items() for point in points]
        has_points = has_points or bool(rows)
        for name, point in sorted(rows, key=lambda row: row[1]["timestamp"]):
            if options.json:
                show.as_line({"metric": name, **point})
            else:
                show.line(
                    f"{_time(point['timestamp'])}  step {point['step']}  "
                    f"{name} {show.number(point['value'])}"
                )
    if not has_points:
        _hold_to_attempt(options)
    if not has_points and options.metric is not None:
        raise _unknown(options)
    if not has_points and not options.json:
        show.talk(_none(find_server.ask(routes.show_job, options.name), options))
    return 0


def _matches(series: MetricSeries, options: argparse.Namespace) -> bool:
    named = options.metric in (None, series["name"], series["key"])
    return named and options.attempt in (None, series["attempt"])


def _none(job: JobRecord, options: argparse.Namespace) -> str:
    """Why there are no metrics."""
    name = job["name"]
    if job["type"] == "pipeline":
        return f"{name} is a pipeline; its jobs have metrics: allranks job list --parent {name}"
    if job["started_at"] is None and job["ended_at"] is None:
        return f"{name} has no metrics yet: it has not started"
    if not job["spec"].get("metrics"):
        events = find_server.ask(routes.job_events, name)
        notes = metric_notes(events, job["attempts"])
        why = f": {notes[0]['message']}" if notes else _how(options)
        return f"{name} has no metrics{why}"
    if job["ended_at"] is None:
        return f"{name} has no metrics yet: no output has matched a pattern"
    return f"no number was found in the output of {name}; for details: allranks job events {name}"


def _hold_to_attempt(options: argparse.Namespace) -> None:
    """Raise NotFound if the job has no such attempt."""
    if options.attempt is None:
        return
    last = max(1, find_server.ask(routes.show_job, options.name)["attempts"])
    if not 1 <= options.attempt <= last:
        raise NotFound(
            f"{options.name} has no attempt {options.attempt}", hint=f"its attempts are 1 to {last}"
        )


def _unknown(options: argparse.Namespace) -> NotFound:
    has = find_server.ask(routes.metrics_summary, options.name)["series"]
    words = ", ".join(dict.fromkeys(each["key"] for each in has))
    hint = f"it has {words}" if words else f"it has no metrics{_how(options)}"
    return NotFound(f"{options.name} has no metric {options.metric!r}", hint=hint)


def _how(options: argparse.Namespace) -> str:
    return "" if options.quiet else r": run it with -m loss='loss: ([0-9.]+)'"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime("%H:%M:%S")
