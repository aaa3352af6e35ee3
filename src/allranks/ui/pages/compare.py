"""Jobs side by side: a baseline, what differs from it, and runs of one configuration as a group."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from allranks.api import routes
from allranks.core.insights import scaling_text
from allranks.core.insights.scaling import Scaling, scaling
from allranks.core.metrics.across_ranks import mean
from allranks.errors import UsageError
from allranks.sdk.jobs.line_differences import Different, line_differences
from allranks.sdk.jobs.report_facts import observed
from allranks.ui import render
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.jobs import ComparisonAnswer, ListedJob
    from allranks.api.metrics import MetricSummary

# Metrics of the table; ways to differ of which lines are shown, and how many of a file.
_METRICS, _WAYS, _LINES = 40, 4, 60
# Of these less is better, and of those more.
_LESS = re.compile(r"loss|err|perplexity|ppl|time|latency|mae|mse|rmse|wer$|cer$|fid$|nll", re.I)
_MORE = re.compile(r"acc|f1|auc|precision|recall|score|bleu|rouge|reward|throughput|per_sec", re.I)


class Run(NamedTuple):
    """A job, or several of one configuration. ``colour``: a number, that of its curves."""

    label: str
    jobs: list[str]
    colour: int


class Value(NamedTuple):
    """``spread``: the standard deviation in a group; ``difference``: from the baseline."""

    value: float | str | None
    spread: float | None = None
    difference: float | None = None
    best: bool = False

    @property
    def shown(self) -> float | str | None:
        """A mean with the digits that its spread leaves it, and one more."""
        if not self.spread or not isinstance(self.value, int | float):
            return self.value
        with suppress(OverflowError):  # the largest numbers cannot be rounded up
            return round(self.value, 1 - math.floor(math.log10(self.spread)))
        return self.value


class Values(NamedTuple):
    """Of a metric of a run."""

    last: Value
    least: Value
    greatest: Value


class Metric(NamedTuple):
    name: str
    rows: list[tuple[Run, Values]]


async def page(request: Request) -> Response:
    """What differs between jobs; what is shown is in the address."""
    session: Session = request.state.session
    query = request.query_params
    names = list(dict.fromkeys(query.getlist("job")))
    if len(names) < 2:
        raise UsageError("choose at least two jobs to compare", hint="tick them in the list")
    baseline = query.get("baseline", "")
    first = baseline if baseline in names else names[0]
    ordered = [first, *(name for name in names if name != first)]
    comparison = await session.get(routes.compare_jobs, job=ordered)
    runs = _runs(comparison, names, grouped=query.get("group") == "on")
    summaries, different, how_it_scales = await asyncio.gather(
        asyncio.gather(*(_summary(session, name) for name in ordered)),
        run_in_threadpool(_lines, session, comparison),
        run_in_threadpool(_scaling, session, comparison["jobs"]),
    )
    metrics = _metrics(runs, dict(zip(ordered, summaries, strict=True)))
    find = query.get("find", "").lower()
    shown = [metric for metric in metrics if find in metric.name.lower()]
    sections: dict[str, list[Any]] = {}
    for difference in comparison["differences"]:
        if difference["section"] != "metrics":
            sections.setdefault(difference["section"], []).append(difference)
    return render.page(
        request,
        "compare.html",
        jobs=comparison["jobs"],
        baseline=first,
        runs=runs,
        repeated=len(set(comparison["configurations"])) < len(names),
        metrics=shown[:_METRICS],
        more_metrics=len(shown) - _METRICS,
        of_one_rank=any(one["rank"] for summary in summaries for one in summary),
        metric_names=[metric.name for metric in metrics],
        sections=sections,
        different=different,
        names=names,
        ordered=ordered,
        scaling=how_it_scales,
        scaling_text=scaling_text,
    )


def _runs(comparison: ComparisonAnswer, names: Sequence[str], *, grouped: bool) -> list[Run]:
    """The baseline's first. Colours are by the order in the address, so that another baseline
    changes none."""
    ordered = [job["name"] for job in comparison["jobs"]]
    if not grouped:
        return [Run(name, [name], names.index(name)) for name in ordered]
    groups: dict[int, list[str]] = {}
    for name, number in zip(ordered, comparison["configurations"], strict=True):
        groups.setdefault(number, []).append(name)
    return [
        Run(_label(comparison, members), members, min(map(names.index, members)))
        for members in groups.values()
    ]


def _label(comparison: ComparisonAnswer, members: Sequence[str]) -> str:
    """`lr=0.1 (3 runs)`: the parameters that tell a group from others."""
    if len(members) == 1:
        return members[0]
    places = [at for at, job in enumerate(comparison["jobs"]) if job["name"] in members]
    parts = [
        f"{difference['name']}={difference['values'][places[0]]}"
        for difference in comparison["differences"]
        if difference["section"] == "parameters"
        and len({difference["values"][at] for at in places}) == 1
    ]
    return f"{', '.join(parts[:3]) or members[0]} ({len(members)} runs)"


async def _summary(session: Session, name: str) -> list[MetricSummary]:
    answer = await session.get(routes.metrics_summary, name, shape="false")
    return answer["series"]


class _Numbers(NamedTuple):
    last: float | str
    least: float | None
    greatest: float | None


def _numbers(series: Sequence[MetricSummary]) -> dict[str, _Numbers]:
    """Of each metric those of its lowest rank: the last value of the newest attempt, and the
    extremes of all."""
    by_name: dict[str, list[MetricSummary]] = {}
    for one in series:
        by_name.setdefault(one["name"], []).append(one)
    numbers = {}
    for name, several in by_name.items():
        lowest = min(one["rank"] or 0 for one in several)
        own = [one for one in several if (one["rank"] or 0) == lowest]
        newest = max(own, key=lambda one: one["attempt"])
        least = [one["min"] for one in own if one["min"] is not None]
        greatest = [one["max"] for one in own if one["max"] is not None]
        last = newest["last"][2]
        numbers[name] = _Numbers(
            "–" if last is None else last, min(least, default=None), max(greatest, default=None)
        )
    return numbers


def _metrics(runs: Sequence[Run], summaries: Mapping[str, Sequence[MetricSummary]]) -> list[Metric]:
    by_job = {name: _numbers(series) for name, series in summaries.items()}
    names = dict.fromkeys(name for numbers in by_job.values() for name in numbers)
    metrics = []
    for name in names:
        columns = []
        for kind in _Numbers._fields:
            of_runs = [
                [getattr(by_job[job][name], kind) for job in run.jobs if name in by_job[job]]
                for run in runs
            ]
            columns.append(list(_column(name, kind, of_runs)))
        rows = [(run, Values(*values)) for run, *values in zip(runs, *columns, strict=True)]
        metrics.append(Metric(name, rows))
    return metrics


def _column(name: str, kind: str, of_runs: Sequence[Sequence[Any]]) -> Iterator[Value]:
    """A kind of value of a metric, of each run; the first one is the baseline. Of losses the
    greatest, and of accuracies the least, is none that could be the best."""
    values = [_mean(several) for several in of_runs]
    numbers = [_finite(value.value) for value in values]
    finite = [number for number in numbers if number is not None]
    best = None
    if len(set(finite)) > 1 and _LESS.search(name):
        best = min(finite) if kind != "greatest" else None
    elif len(set(finite)) > 1 and _MORE.search(name):
        best = max(finite) if kind != "least" else None
    base = numbers[0]
    for value, number in zip(values, numbers, strict=True):
        difference = None if number is None or base is None else number - base
        yield value._replace(difference=difference, best=number is not None and number == best)


def _mean(several: Sequence[Any]) -> Value:
    numbers = [number for value in several if (number := _finite(value)) is not None]
    if len(numbers) < len(several) or not numbers:
        return Value(several[0] if several else None)
    spread = None
    with suppress(OverflowError):  # the largest numbers are farther apart than any number
        spread = stdev(numbers) if len(numbers) > 1 else None
    return Value(mean(numbers), spread)


def _finite(value: Any) -> float | None:
    """A number; None for what is none, and for infinities."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _lines(session: Session, comparison: ComparisonAnswer) -> list[Different]:
    with session.client() as client:
        return line_differences(client, comparison, _WAYS, _LINES)


def _scaling(session: Session, jobs: list[ListedJob]) -> Scaling | None:
    """How the work scales, if these are runs of several sizes."""
    if any(job["type"] != "command" for job in jobs) or len({job["processes"] for job in jobs}) < 2:
        return None
    with session.client() as client:
        return scaling([observed(client, job["name"]) for job in jobs])
