"""Show a sweep and its trials on a terminal or in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allranks.cli.job.children import ENDED, ChildrenViewer, print_error, took
from allranks.cli.output import show
from allranks.cli.report.trials import parameters, parameters_table, trials_table

# Trials shown by `job show`, and parameters in one line.
_MOST = 20


class SweepViewer(ChildrenViewer):
    """Follows a sweep: a line for each trial that ends."""

    _note = ""

    def lines(self, job: dict[str, Any]) -> Iterator[tuple[str, str]]:
        metric = job["objective"]["primary_metric"]
        for trial in job["changed_children"]:
            if trial["status"] in ENDED and self.is_new(trial["job"]):
                yield trial_line(trial, metric), trial["status"]
        if job["note"] and not self._note:
            self._note = job["note"]
            yield f"note: {self._note}", ""

    def progress(self, job: dict[str, Any]) -> str:
        return progress(job)


def progress(job: Mapping[str, Any]) -> str:
    """One line: `sw Running: 7 of 20 trials, 4 running, best acc 0.93 (sw_5)`."""
    counts = job["counts"]
    ended = sum(counts.get(each, 0) for each in ENDED)
    text = f"{job['name']} {job['status']}: {ended} of {job['total_trials']} trials"
    if live := sum(counts.values()) - ended:
        text += f", {live} running"
    if counts.get("Failed"):
        text += f", {counts['Failed']} failed"
    if best := job["best"]:
        text += f", best {best['metric']} {show.number(best['value'])} ({best['job']})"
    return text


def trial_line(trial: Mapping[str, Any], metric: str) -> str:
    """One trial that has ended."""
    status = "Stopped early" if trial["stopped_early"] else trial["status"]
    value = "" if trial["value"] is None else f"  {metric} {show.number(trial['value'])}"
    error = f"  {trial['error']}" if trial["status"] == "Failed" and trial["error"] else ""
    return show.one_line(f"{trial['job']}  {status}{value}  {parameters(trial)}{error}")


def verdict(job: dict[str, Any], *, quiet: bool = False) -> None:
    """Print how the sweep ended and its best trial."""
    best = job["best"]
    if not quiet:
        ran = sum(job["counts"].values())
        show.talk(f"{job['name']}: {job['status']}{took(job)}, {ran} trials", job["status"])
        if best is not None:
            value = f"{best['metric']} {show.number(best['value'])}"
            show.talk(f"best: {best['job']}  {value}  {parameters(best)}")
    print_error(job, quiet=quiet)


def show_sweep(job: dict[str, Any]) -> None:
    """The fields of a sweep, and its best trials."""
    objective, best = job["objective"], job["best"]
    spec = job["spec"]
    algorithm = (spec.get("sampling_algorithm") or {"type": "random"})["type"]
    fields = [
        ("name", job["name"]),
        ("type", job["type"]),
        ("status", job["status"]),
        ("experiment", job["experiment_name"]),
        ("compute", job["compute"]),
        ("command", job["command"]),
        ("objective", f"{objective['goal']} {objective['primary_metric']}, {algorithm} sampling"),
        ("trials", progress(job).partition(": ")[2]),
        ("created", job["created_at"]),
        ("started", job["started_at"] or "-"),
        ("ended", job["ended_at"] or "-"),
        *((f"output {name}", path) for name, path in job["outputs"].items()),
    ]
    for name, value in fields:
        show.field(name, value)
    if best is not None:
        value = f"{best['metric']} {show.number(best['value'])}"
        show.field("best", f"{best['job']}: {value}, {parameters(best)}")
    if job["error"]:
        show.field("error", job["error"]["message"])
        show.field("hint", job["error"]["hint"])
    if job["note"]:
        show.field("note", job["note"])
    if job["parameter_summary"]:
        print()
        show.columns(*parameters_table(job["parameter_summary"]))
    if job["trials"]:
        print()
        show.columns(*trials_table(job["trials"][:_MOST], objective["primary_metric"]))
        if (more := len(job["trials"]) - _MOST) > 0:
            show.talk(f"and {more} more: allranks job list --parent {job['name']}")
