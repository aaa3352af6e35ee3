"""Show a sweep and its trials on a terminal or in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from allranks.cli.job.children import ENDED, ChildrenViewer, progress
from allranks.cli.output import show
from allranks.cli.report.trials import (
    metric_of,
    parameters,
    parameters_table,
    status_of,
    trials_table,
)

if TYPE_CHECKING:
    from allranks.api.jobs import BestTrial, JobAnswer, StreamedJob, TrialAnswer
    from allranks.sdk.jobs.follow import Children

# Trials shown by `job show`, and parameters in one line.
_MOST = 20


class SweepViewer(ChildrenViewer):
    """Follows a sweep: a line for each trial that ends."""

    _note = ""

    def lines(self, job: StreamedJob, children: Children) -> Iterator[tuple[str, str]]:
        metric = metric_of(job)
        for trial in cast("Sequence[TrialAnswer]", children):
            if trial["status"] in ENDED and self.is_new(trial["job"]):
                yield trial_line(trial, metric), trial["status"]
        if job["note"] and not self._note:
            self._note = job["note"]
            yield f"note: {self._note}", ""

    def progress(self, job: StreamedJob) -> str:
        return _progress(job)


def _progress(job: StreamedJob) -> str:
    """One line: `sw Running: 7 of 20 trials, 4 running, best acc 0.93 (sw_5)`."""
    best = job["best"]
    text = progress(job, job["total_trials"], "trials") + _stopped(job)
    return text + (f", best {_value(best)} ({best['job']})" if best else "")


def _stopped(job: JobAnswer | StreamedJob) -> str:
    count = job["stopped_early"]
    return f", {count} stopped early" if count else ""


def trial_line(trial: TrialAnswer, metric: str) -> str:
    """One trial that has ended."""
    value = "" if trial["value"] is None else f"  {metric} {show.number(trial['value'])}"
    error = f"  {trial['error']}" if trial["status"] == "Failed" and trial["error"] else ""
    return show.one_line(f"{trial['job']}  {status_of(trial)}{value}  {parameters(trial)}{error}")


def show_result(job: JobAnswer, took: str) -> None:
    """Print how the sweep ended and its best trial."""
    ran = sum(job["counts"].values())
    text = f"{job['name']}: {job['status']}{took}, {ran} trials{_stopped(job)}"
    show.talk(text, job["status"])
    if (best := job["best"]) is not None:
        show.talk(f"best: {best['job']}  {_value(best)}  {parameters(best)}")


def _value(trial: BestTrial) -> str:
    return f"{trial['metric']} {show.number(trial['value'])}"


def fields(job: JobAnswer) -> list[tuple[str, str]]:
    """What only a sweep has."""
    objective, best = job["objective"], job["best"]
    compared = f"{objective['goal']} {objective['primary_metric']}" if objective else "none"
    algorithm = (job["spec"].get("sampling_algorithm") or {"type": "random"})["type"]
    made = [
        ("command", job["command"]),
        ("objective", f"{compared}, {algorithm} sampling"),
        ("trials", _progress(job).partition(": ")[2]),
    ]
    if best is not None:
        made.append(("best", f"{best['job']}: {_value(best)}, {parameters(best)}"))
    return [*made, ("note", job["note"])] if job["note"] else made


def show_children(job: JobAnswer) -> None:
    """The best trials of a sweep."""
    if job["parameter_summary"]:
        print()
        show.columns(*parameters_table(job["parameter_summary"]))
    if job["trials"]:
        print()
        show.columns(*trials_table(job["trials"][:_MOST], metric_of(job)))
        if (more := len(job["trials"]) - _MOST) > 0:
            show.talk(f"and {more} more: allranks job list --parent {job['name']}")
