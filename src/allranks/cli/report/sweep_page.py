"""The report of a sweep as an HTML page: history, parallel coordinates, all trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from allranks.cli.report.html_page import boxed, svg, table, whole

_WIDTH, _HEIGHT = 920, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 40, 30, 40
# The share of trials that is drawn as good.
_GOOD = 0.2
# So many different numbers are all marked on an axis.
_FEW = 4

Trial = Mapping[str, Any]


class Scale(NamedTuple):
    """Maps values to the range from 0 to 1. ``marks`` are (position, label). Texts have equal
    distances; numbers that are all positive and span two orders of magnitude are logarithmic."""

    values: tuple[Any, ...]
    marks: tuple[tuple[float, str], ...]
    low: float = 0.0
    high: float = 1.0
    log: bool = False

    def at(self, value: Any) -> float:
        if self.values:
            return (self.values.index(value) + 0.5) / len(self.values)
        number = math.log10(value) if self.log else float(value)
        return 0.5 if self.high == self.low else (number - self.low) / (self.high - self.low)


def scale(values: Sequence[Any]) -> Scale:
    """The scale of some values, which are not empty."""
    if not all(isinstance(each, int | float) for each in values):
        texts = tuple(dict.fromkeys(map(_text, values)))
        return Scale(texts, tuple(((i + 0.5) / len(texts), t) for i, t in enumerate(texts)))
    low = float(min(values))
    high = float(max(values))
    log = low > 0 and high / low >= 100
    if log:
        low = math.log10(low)
        high = math.log10(high)
    drawn = Scale((), (), low, high, log)
    if len(distinct := sorted({*values})) <= _FEW:
        marks = [(drawn.at(each), f"{each:.4g}") for each in distinct]
    else:
        numbers = [(step, low + step * (high - low)) for step in (0.0, 0.5, 1.0)]
        marks = [(step, f"{10**number if log else number:.4g}") for step, number in numbers]
    return drawn._replace(marks=tuple(marks))


def sweep_page(job: Mapping[str, Any], head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The page of a sweep as ``job show --json`` has it, with the table of its trials."""
    metric, goal = job["objective"]["primary_metric"], job["objective"]["goal"]
    valued = [each for each in job["trials"] if each["value"] is not None]
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
        values = ", ".join(f"{name}={_text(each)}" for name, each in best["parameters"].items())
        yield f"Best: {best['job']} with {metric} {best['value']:.6g} ({values})."
    for name, summary in job["parameter_summary"].items():
        region = summary["best"]
        where = ", ".join(region["values"])
        if region["low"] is not None:
            where = f"{_text(region['low'])} to {_text(region['high'])}"
        share = "" if summary["importance"] is None else f", importance {summary['importance']:.2f}"
        yield f"{name}: {where} in the best {region['trials']} trials{share}."


def _x(share: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _history(trials: Sequence[Trial], metric: str, goal: str) -> str:
    up = scale([each["value"] for each in trials])
    across = scale([int(each["number"]) for each in trials])._replace(log=False)
    better = max if goal == "maximize" else min
    parts = list(_axis(0.0, up))
    so_far, line = trials[0]["value"], []
    for trial in trials:
        x, before = _x(across.at(trial["number"])), so_far
        so_far = better(so_far, trial["value"])
        line += [f"{x:.1f},{_y(up.at(value)):.1f}" for value in dict.fromkeys((before, so_far))]
        title = _title(trial, metric)
        y = _y(up.at(trial["value"]))
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>')
    parts.append(f'<polyline class="fit" points="{" ".join(line)}"/>')
    first, last = trials[0]["number"], trials[-1]["number"]
    for number in dict.fromkeys((first, last)):
        x = _x(across.at(number))
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{number}</text>')
    return svg(parts, _HEIGHT, "history of the sweep", _WIDTH)


def _parallel(trials: Sequence[Trial], metric: str, best: Trial | None) -> str:
    """``trials``: the best first."""
    names = [
        name
        for name in dict.fromkeys(name for each in trials for name in each["parameters"])
        if all(name in each["parameters"] for each in trials)
    ]
    columns = {name: [each["parameters"][name] for each in trials] for name in names}
    columns[metric] = [each["value"] for each in trials]
    scales = {name: scale(values) for name, values in columns.items()}
    places = {name: i / max(1, len(columns) - 1) for i, name in enumerate(columns)}
    parts: list[str] = []
    good = max(1, round(_GOOD * len(trials)))
    for index, trial in reversed(list(enumerate(trials))):
        points = []
        for name, drawn in scales.items():
            value = columns[name][index]
            share = drawn.at(_text(value) if drawn.values else value)
            points.append(f"{_x(places[name]):.1f},{_y(share):.1f}")
        kind = "best" if best and trial["job"] == best["job"] else "trial"
        kind = "good" if kind == "trial" and index < good else kind
        title = _title(trial, metric)
        parts.append(f'<polyline class="{kind}" points="{" ".join(points)}">{title}</polyline>')
    for name, drawn in scales.items():
        parts += _axis(places[name], drawn)
        x = _x(places[name])
        parts.append(f'<text x="{x:.1f}" y="14" text-anchor="middle">{escape(name)}</text>')
    return svg(parts, _HEIGHT, "parameters and values of the trials", _WIDTH)


def _axis(place: float, drawn: Scale) -> Iterable[str]:
    x = _x(place)
    yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_y(1)}" y2="{_y(0)}"/>'
    for share, label in drawn.marks:
        short = label if len(label) <= 14 else label[:13] + "…"
        at = f'x="{x - 6:.1f}" y="{_y(share) + 4:.1f}" text-anchor="end"'
        yield f"<text {at}>{escape(short)}</text>"


def _title(trial: Trial, metric: str) -> str:
    """What a reader sees who points at a trial."""
    text = f"{trial['job']}: {metric} {trial['value']:.6g}"
    return f"<title>{escape(text)}</title>"


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
