"""The report of a sweep as an HTML page: history, parallel coordinates, all trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from allranks.cli.report.html_page import boxed, table, whole
from allranks.core.charts import Axis, Plane, spanning, svg, text, text_of

_WIDTH, _HEIGHT = 920, 320
# The share of trials that is drawn as good.
_GOOD = 0.2

Trial = Mapping[str, Any]


def sweep_page(job: Mapping[str, Any], head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The page of a sweep as ``job show --json`` has it, with the table of its trials."""
    metric, goal = job["objective"]["primary_metric"], job["objective"]["goal"]
    valued = [trial for trial in job["trials"] if trial["value"] is not None]
    best = job["best"]
    lines = [f"<p>{escape(line)}</p>" for line in _sentences(job, metric, goal)]
    figures = []
    if valued:
        history = sorted(valued, key=lambda each: int(each["number"]))
        figures.append(
            boxed(
                f"{metric} by trial",
                _history(history, metric, goal),
                "the best value of each trial, and the best so far (line)",
                wide=True,
            )
        )
        key = "each line is a trial: the best fifth is coloured, the best one is bold"
        figures.append(boxed("Parameters", _parallel(valued, metric, best), key, wide=True))
    return whole(f"Sweep {job['name']}", f"Sweep {job['name']}", lines, figures, table(head, rows))


def _sentences(job: Mapping[str, Any], metric: str, goal: str) -> Iterable[str]:
    ran = sum(job["counts"].values())
    yield f"{job['status']}: {ran} of {job['total_trials']} trials, to {goal} {metric}."
    if best := job["best"]:
        values = ", ".join(f"{name}={text_of(each)}" for name, each in best["parameters"].items())
        yield f"Best: {best['job']} with {metric} {best['value']:.6g} ({values})."
    for name, summary in job["parameter_summary"].items():
        region = summary["best"]
        where = ", ".join(region["values"])
        if region["low"] is not None:
            where = f"{text_of(region['low'])} to {text_of(region['high'])}"
        share = "" if summary["importance"] is None else f", importance {summary['importance']:.2f}"
        yield f"{name}: {where} in the best {region['trials']} trials{share}."


def _plane(across: Axis, up: Axis) -> Plane:
    return Plane(across, up, _WIDTH, _HEIGHT, left=70, right=40, top=30, bottom=44)


def _history(trials: Sequence[Trial], metric: str, goal: str) -> str:
    up = spanning([each["value"] for each in trials])
    across = spanning([int(each["number"]) for each in trials])._replace(log=False)
    ends = dict.fromkeys((int(across.low), int(across.high)))
    plane = _plane(across._replace(marks=tuple((end, str(end)) for end in ends)), up)
    better = max if goal == "maximize" else min
    so_far, line, dots = trials[0]["value"], [], []
    for trial in trials:
        number, before = trial["number"], so_far
        so_far = better(so_far, trial["value"])
        line += [(number, value) for value in dict.fromkeys((before, so_far))]
        dots.append(plane.dot('class="dot"', number, trial["value"], _title(trial, metric)))
    parts = [*plane.frame("trial"), *dots, plane.line('class="fit"', line)]
    return svg(parts, _WIDTH, _HEIGHT, "history of the sweep")


def _parallel(trials: Sequence[Trial], metric: str, best: Trial | None) -> str:
    """``trials``: the best first."""
    names = [
        name
        for name in dict.fromkeys(name for each in trials for name in each["parameters"])
        if all(name in each["parameters"] for each in trials)
    ]
    columns = {name: [each["parameters"][name] for each in trials] for name in names}
    columns[metric] = [each["value"] for each in trials]
    axes = {name: spanning(values) for name, values in columns.items()}
    plane = _plane(Axis(0, max(1, len(columns) - 1)), Axis(0, 1))
    parts: list[str] = []
    good = max(1, round(_GOOD * len(trials)))
    for index, trial in reversed(list(enumerate(trials))):
        shares = [axis.at(columns[name][index]) for name, axis in axes.items()]
        kind = "best" if best and trial["job"] == best["job"] else "trial"
        kind = "good" if kind == "trial" and index < good else kind
        parts.append(plane.line(f'class="{kind}"', [*enumerate(shares)], _title(trial, metric)))
    for place, (name, axis) in enumerate(axes.items()):
        parts += plane.scale(plane.x(place), axis)
        parts.append(text(plane.x(place), 14, name))
    return svg(parts, _WIDTH, _HEIGHT, "parameters and values of the trials")


def _title(trial: Trial, metric: str) -> str:
    """What a reader sees who points at a trial."""
    return f"{trial['job']}: {metric} {trial['value']:.6g}"
