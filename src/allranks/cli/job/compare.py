"""`allranks job compare`: what differs between jobs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import colours, show
from allranks.core.amounts import counted
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.line_differences import Lines, line_differences
from allranks.sdk.jobs.metrics import by_name

# The length limit of a value; `--json` has the full value.
_WIDE = 48
_STYLES = {"+": colours.GREEN, "-": colours.RED, "@": colours.CYAN}


def compare_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser, nargs="+")


def compare(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    if len(names) < 2:
        hint = "name two jobs or more: allranks job compare - NAME"
        raise UsageError("one job alone cannot be compared", hint=hint)
    with find_server.connect() as client:
        comparison = client.ask(routes.compare_jobs, job=names)
        different = line_differences(client, comparison)
    if options.json:
        lines = [
            {"jobs": way.jobs, "parts": [part._asdict() for part in way.parts or ()]}
            for way in different
        ]
        show.as_json({**comparison, "lines": lines})
        return 0
    rows: list[list[str]] = []
    section = ""
    for difference in comparison["differences"]:
        if difference["section"] != section:
            section = difference["section"]
            rows.append([section.upper(), *[""] * len(names)])
        rows.append([f"  {difference['name']}", *map(_cell, difference["values"])])
    if not rows:
        show.talk("no recorded differences")
        return 0
    show.columns(["", *names], rows)
    for way in different:
        jobs = f"{names[0]} → {show.several(way.jobs)}"
        for part in way.parts or ():
            _show_lines(f"{jobs}: {part.name} {part.what}", part)
    return 0


def _show_lines(title: str, part: Lines) -> None:
    """What differs, as diff shows it."""
    is_coloured = colours.coloured(sys.stdout)
    print()
    show.line(title)
    for line in part.lines:
        style = _STYLES.get(line[:1], "") if is_coloured else ""
        print(colours.paint(show.one_line(line.expandtabs()), style))
    if part.more:
        show.line(f"and {counted(part.more, 'line')} more")


def metrics_of(names: list[str], options: argparse.Namespace) -> int:
    """The metrics of several jobs side by side: the last value of each, or one step by step."""
    if options.follow:
        raise UsageError("--follow is for one job", where="--follow", hint="name one job")
    filters = {"metric": options.metric, "attempt": options.attempt}
    with find_server.connect() as client:
        jobs = {
            name: by_name(client.ask(routes.job_metrics, name, **filters)["series"])
            for name in names
        }
    if options.json:
        show.as_json(jobs)
        return 0
    metrics = list(dict.fromkeys(metric for job in jobs.values() for metric in job))
    if not metrics:
        what = "metrics" if options.metric is None else f"metric {options.metric!r}"
        show.talk(f"none of these jobs has {what}")
        return 0
    head, rows = ["METRIC", *names], []
    if options.metric is None:
        for metric in metrics:
            points = (jobs[name].get(metric) for name in names)
            last = (each[-1]["value"] if each else None for each in points)
            rows.append([metric, *map(show.number, last)])
    else:
        head = ["STEP", *names]
        # If several attempts or ranks report a step, the last one.
        by_step = [
            {point["step"]: point["value"] for several in jobs[name].values() for point in several}
            for name in names
        ]
        for step in sorted({step for each in by_step for step in each}):
            rows.append([str(step), *(show.number(each.get(step)) for each in by_step)])
    show.columns(head, rows)
    return 0


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else show.number(value)
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"
