"""What the parameters of a sweep are worth, and where to look next, as drawings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.ui.render import number

if TYPE_CHECKING:
    from allranks.api.jobs import ParameterSummary, TrialAnswer
    from allranks.api.metrics import ShownJob

# Trials that are drawn as marks.
_MARKS = 200
# A range this wide is drawn by powers of ten, unless values are drawn evenly.
_WIDE = 100
_EVEN = ("uniform", "quniform", "normal", "qnormal", "randint")


class Worth(NamedTuple):
    """A parameter. ``importance`` in percent, None if unknown; ``marks`` are the places of the
    trials, from 0 to 100; the best ones lie from ``begin``, over ``width``. ``next``: what to
    search next, as `--sweep` takes it."""

    name: str
    importance: float | None
    best: str
    marks: list[float]
    begin: float
    width: float
    next: str


def worth(job: ShownJob) -> list[Worth]:
    """The parameters, the most important first."""
    summary: Mapping[str, ParameterSummary] = job.get("parameter_summary") or {}
    space = job["spec"].get("search_space") or {}
    rows = [
        _worth(name, parameter, job.get("trials", ()), space.get(name))
        for name, parameter in summary.items()
    ]
    return sorted(rows, key=lambda row: -1 if row.importance is None else -row.importance)


def even(job: ShownJob) -> list[str]:
    """The parameters whose axes have no powers of ten."""
    space: Mapping[str, Any] = job["spec"].get("search_space") or {}
    return [name for name, values in space.items() if _kind(values) in _EVEN]


def _kind(space: Any) -> str:
    return str(space.get("type", "")) if isinstance(space, Mapping) else ""


def _worth(
    name: str, parameter: ParameterSummary, trials: Sequence[TrialAnswer], space: Any
) -> Worth:
    importance, best = parameter["importance"], parameter["best"]
    share = None if importance is None else 100 * importance
    low, high = best["low"], best["high"]
    if low is None or high is None:
        words = ", ".join(best["values"])
        return Worth(name, share, words, [], 0, 0, f"{name}=choice({','.join(best['values'])})")
    values = [float(trial["parameters"][name]) for trial in trials if name in trial["parameters"]]
    least, greatest = min(values), max(values)
    kind = _kind(space)
    powers = least > 0 and greatest / least >= _WIDE and kind not in _EVEN
    size = math.log if powers else float
    span = size(greatest) - size(least)

    def place(value: float) -> float:
        return 100 * (size(value) - size(least)) / span if span else 50.0

    following = f"{name}={kind}({low:.3g},{high:.3g})"
    return Worth(
        name,
        share,
        f"{number(low)} to {number(high)}",
        [round(place(value), 1) for value in values[:_MARKS]],
        round(place(low), 1),
        round(max(1.0, place(high) - place(low)), 1),
        following if kind in ("uniform", "loguniform") and low < high else "",
    )
