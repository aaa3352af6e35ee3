"""Show a sweep and its trials on a terminal or in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from allranks.cli.output import show
from allranks.cli.output.rank_output import Printer
from allranks.cli.report.trials import parameters, parameters_table, trials_table
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import Following

# Trials shown by `job show`, and parameters in one line.
_MOST = 20
_ENDED = ("Completed", "Failed", "Canceled")


class SweepViewer:
    """Follows a sweep: a line for each trial that ends and, on a terminal, a line with the counts.
    With ``logs``, the output of all trials behind their names."""

    def __init__(
        self, name: str, *, quiet: bool = False, json: bool = False, logs: bool = False
    ) -> None:
        self._quiet, self._logs = quiet, logs
        self._to = sys.stderr if json else sys.stdout
        self._line = show.StatusLine(quiet)
        self._printers: dict[str, Printer] = {}
        self._printed: set[str] = set()
        self._note = ""
        self._following = Following(
            find_server.connect, name, wanted={"logs": logs}, changed=self._changed
        )

    def follow(self) -> dict[str, Any]:
        """Show the sweep until it has ended; returns it."""
        try:
            for piece in self._following.pieces():
                if piece and self._logs:
                    self._line.clear()
                    self._printer(piece["child"]).put(piece)
        finally:
            self._line.clear()
            for each in self._printers.values():
                each.end()
        return self._following.job

    def _printer(self, child: str) -> Printer:
        if child not in self._printers:
            self._printers[child] = Printer(1, self._to, True, label=child)
        return self._printers[child]

    def _changed(self, job: dict[str, Any]) -> None:
        if self._quiet:
            return
        self._line.clear()
        for trial in job["changed_trials"]:
            if trial["status"] in _ENDED and trial["job"] not in self._printed:
                self._printed.add(trial["job"])
                show.talk(trial_line(trial, job["objective"]["primary_metric"]), trial["status"])
        if job["note"] and not self._note:
            self._note = job["note"]
            show.talk(f"note: {self._note}")
        if job["status"] not in _ENDED:
            self._line.say(progress(job))


def progress(job: Mapping[str, Any]) -> str:
    """One line: `sw Running: 7 of 20 trials, 4 running, best acc 0.93 (sw_5)`."""
    counts = job["counts"]
    ended = sum(counts.get(each, 0) for each in _ENDED)
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


def verdict(job: dict[str, Any], *, quiet: bool = False) -> int:
    """Print how the sweep ended and its best trial. Returns 0 if it completed, else 1."""
    error, best = job["error"], job["best"]
    if not quiet:
        took = ""
        if job["started_at"] and job["ended_at"]:
            began, ended = map(datetime.fromisoformat, (job["started_at"], job["ended_at"]))
            took = f" after {show.seconds((ended - began).total_seconds())}"
        ran = sum(job["counts"].values())
        show.talk(f"{job['name']}: {job['status']}{took}, {ran} trials", job["status"])
        if best is not None:
            value = f"{best['metric']} {show.number(best['value'])}"
            show.talk(f"best: {best['job']}  {value}  {parameters(best)}")
    if error and job["status"] != "Canceled":
        show.talk(f"error: {error['message']}")
        if error["hint"] and not quiet:
            show.talk(f"\nhint: {error['hint']}")
    return int(job["status"] != "Completed")


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
