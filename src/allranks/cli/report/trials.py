"""Trials of a sweep and their parameters as text and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.cli.output import show

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer, ParameterSummary, StreamedJob, TrialAnswer


def metric_of(job: JobAnswer | StreamedJob) -> str:
    """The primary metric of a sweep; empty if its trials are not compared."""
    objective = job["objective"]
    return "" if objective is None else objective["primary_metric"]


def parameters(trial: TrialAnswer) -> str:
    """The parameters of a trial: `lr=0.01, batch=32`."""
    return ", ".join(f"{name}={shown(value)}" for name, value in trial["parameters"].items())


def status_of(trial: TrialAnswer) -> str:
    return f"{trial['status']} (stopped early)" if trial["stopped_early"] else trial["status"]


def shown(value: Any) -> str:
    """A parameter as text."""
    return show.number(value) if isinstance(value, float) else str(value)


def parameters_table(
    parameters: Mapping[str, ParameterSummary],
) -> tuple[list[str], list[list[str]]]:
    """What each parameter is worth, and where the best trials are."""
    rows = []
    for name, summary in parameters.items():
        share, best = summary["importance"], summary["best"]
        worth = "-" if share is None else f"{share:.2f}"
        where = ", ".join(best["values"])
        if best["low"] is not None:
            where = f"{shown(best['low'])} to {shown(best['high'])}"
        rows.append([name, worth, where])
    rows.sort(key=lambda row: row[1], reverse=True)
    trials = max(parameter["best"]["trials"] for parameter in parameters.values())
    none = all(summary["importance"] is None for summary in parameters.values())
    importance = "IMPORTANCE (needs 10 to 1000 trials and Optuna)" if none else "IMPORTANCE"
    return ["PARAMETER", importance, f"IN THE BEST {trials} TRIALS"], rows


def trials_table(trials: Sequence[TrialAnswer], metric: str) -> tuple[list[str], list[list[str]]]:
    """A row for each trial, with its value and parameters."""
    names = list(dict.fromkeys(name for trial in trials for name in trial["parameters"]))
    metrics = [metric.upper()] if metric else []
    head = ["TRIAL", "STATUS", *metrics, *(name.upper() for name in names), "TOOK"]
    rows = []
    for trial in trials:
        value = show.number(trial["value"])
        if not_finite := trial.get("not_finite"):
            value += f" ({not_finite} nan or infinite)"
        values = [
            shown(trial["parameters"][name]) if name in trial["parameters"] else "-"
            for name in names
        ]
        took = "-" if trial["duration"] is None else show.seconds(trial["duration"])
        rows.append([trial["job"], status_of(trial), *([value] if metric else ()), *values, took])
    return head, rows
