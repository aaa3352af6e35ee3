"""`allranks report goodput …`: how jobs spent their time."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.core.insights.checkpoint_interval import Advice, advise
from allranks.core.insights.goodput import Activity, Goodput
from allranks.errors import NotFound, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.goodput_facts import COSTS, JobTimes, children_of, job_times

# The limit of jobs of an experiment, newest first.
_MOST = 1000


def goodput_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    job_argument(parser, nargs="*", metavar="JOB")
    add("--experiment", metavar="E", help="all jobs of this experiment")


def goodput(options: argparse.Namespace) -> int:
    """Queueing, preparing, computing, lost work, hangs, held failures, restarting, finalizing: per
    job and in total."""
    if bool(options.names) == bool(options.experiment):
        hint = "allranks report goodput JOB JOB …, or --experiment E"
        raise UsageError("jobs or an experiment are missing", hint=hint)
    with find_server.connect() as client:
        names = list(dict.fromkeys(options.names))
        if options.experiment:
            filters = {"experiment": options.experiment, "limit": _MOST, "children": True}
            listed = client.ask(routes.list_jobs, **filters)
            names = [job["name"] for job in listed if job["type"] == "command"]
            if not names:
                hint = "see allranks job list"
                raise NotFound(f"no jobs in the experiment {options.experiment!r}", hint=hint)
        jobs = [job_times(client, each) for name in names for each in children_of(client, name)]
    advice = _advice(jobs)
    if options.json:
        show.as_json(_as_json(jobs, advice))
        return 0
    show.columns(
        ("JOB", "GOODPUT", *(each.upper() for each in _shown(jobs)), "WHOLE"), _table(jobs)
    )
    for line in _sentences(jobs, advice):
        show.line(line)
    return 0


def summary(result: Goodput) -> str:
    """One line: the share, and the rest by length; empty before the start."""
    if result.stepless:
        return "unknown: it ended before a metric or checkpoint reported a step"
    if result.share is None:
        return ""
    rest = [(result.seconds(each), each) for each in Activity if each is not Activity.COMPUTING]
    rows = [
        f"{each} {show.seconds(took)}" for took, each in sorted(rest, reverse=True) if took >= 0.05
    ]
    return f"{_percent(result)} ({', '.join(rows)})" if rows else _percent(result)


def _table(jobs: Sequence[JobTimes]) -> list[tuple[str, ...]]:
    shown = _shown(jobs)
    rows = [_cells(job.name, job.goodput, shown) for job in jobs]
    return rows if len(jobs) == 1 else [*rows, _cells("in all", _together(jobs), shown)]


def _shown(jobs: Sequence[JobTimes]) -> list[Activity]:
    """The columns: few jobs hang or are held."""
    rare = (Activity.HANG, Activity.HOLDING)
    used = {span.activity for job in jobs for span in job.goodput.spans}
    return [activity for activity in Activity if activity in used or activity not in rare]


def _cells(name: str, result: Goodput, shown: Sequence[Activity]) -> tuple[str, ...]:
    times = (show.seconds(result.seconds(activity)) for activity in shown)
    return (name, _percent(result), *times, show.seconds(result.seconds()))


def _percent(result: Goodput) -> str:
    return "-" if result.share is None else f"{100 * result.share:.1f}%"


def _together(jobs: Sequence[JobTimes]) -> Goodput:
    """The sum of all jobs, without those whose training is unknown."""
    goodputs = [job.goodput for job in jobs if not job.goodput.stepless]
    spans = tuple(span for each in goodputs for span in each.spans)
    failures = sum(each.failures for each in goodputs)
    return Goodput(spans, failures, any(each.unknown for each in goodputs))


def _advice(jobs: Sequence[JobTimes]) -> Advice | None:
    costs = [job.cost for job in jobs if job.cost is not None]
    whole = _together(jobs)
    worked = whole.seconds(Activity.COMPUTING, Activity.LOST)
    return advise(median(costs), worked, whole.failures) if costs else None


def _sentences(jobs: Sequence[JobTimes], advice: Advice | None) -> Iterator[str]:
    unknown = [job.name for job in jobs if job.goodput.unknown]
    if unknown:
        yield (
            f"\nlost work is unknown for {', '.join(unknown)} and counts as computing: "
            "log the step with a metric (-m 'loss=step (?P<step>\\d+).*loss (?P<value>\\S+)')"
        )
    if stepless := [job.name for job in jobs if job.goodput.stepless]:
        yield (
            f"\n{', '.join(stepless)}: no metric or checkpoint reported a step, so their "
            "goodput is unknown"
        )
    whole = _together(jobs)
    if advice is not None:
        one = "was 1 failure" if advice.failures == 1 else f"were {advice.failures} failures"
        cost = f"{advice.cost:.2g} s" if advice.cost < 1 else show.seconds(advice.cost)
        yield (
            f"\ncheckpoints: every {show.seconds(advice.interval)} is best (Young, Daly): one "
            f"costs {cost}, and there {one} in "
            f"{show.seconds(advice.between * advice.failures)} of computing. Then "
            f"{100 * advice.waste:.1f}% goes into them and into what is lost"
        )
        if advice.failures < _FEW:
            yield f"  {_doubt(advice)}"
    elif whole.failures and whole.seconds(Activity.COMPUTING):
        yield (
            "\ncheckpoints: to compute the best interval, log the seconds of a "
            f"checkpoint as the metric {COSTS[0]}, or write checkpoints to "
            "$ALLRANKS_STATE_DIR and log steps"
        )


# With fewer failures a mean is not meaningful.
_FEW = 5


def _doubt(advice: Advice) -> str:
    """The interval depends on the root of the time between failures, which is uncertain by a
    factor."""
    factor = math.sqrt(1 + 1 / math.sqrt(advice.failures))
    low, high = advice.interval / factor, advice.interval * factor
    return (
        f"with so few failures this is a rough estimate: {show.seconds(low)} to "
        f"{show.seconds(high)}"
    )


def _as_json(jobs: Sequence[JobTimes], advice: Advice | None) -> dict[str, Any]:
    return {
        "jobs": [
            {"name": job.name, "status": job.status, **_numbers(job.goodput), "cost": job.cost}
            | {"spans": [span._asdict() for span in job.goodput.spans]}
            for job in jobs
        ],
        "in_all": _numbers(_together(jobs)),
        "checkpoints": advice and advice._asdict(),
    }


def _numbers(result: Goodput) -> dict[str, Any]:
    seconds = {str(each): result.seconds(each) for each in Activity}
    numbers = {"goodput": result.share, "seconds": seconds, "whole": result.seconds()}
    numbers |= {"failures": result.failures, "lost_unknown": result.unknown}
    return numbers | {"stepless": result.stepless}
