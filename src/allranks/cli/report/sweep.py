"""`allranks report sweep`: how a sweep found its best trial."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.report.trials import metric_of, parameters, parameters_table, trials_table
from allranks.errors import UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer, TrialAnswer


def sweep_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser, metavar="SWEEP")
    page = "also write history, parallel coordinates and all trials as an HTML page"
    parser.add_argument("--html", type=Path, metavar="FILE", help=page)


def sweep(options: argparse.Namespace) -> int:
    """Each improvement of the best value, and what the parameters are worth."""
    job = find_server.connect().ask(routes.show_job, options.name)
    if job["type"] != "sweep":
        hint = f"its bottleneck: allranks report {job['name']}"
        raise UsageError(f"{job['name']} is not a sweep", hint=hint)
    if job["objective"] is None:
        hint = f"its trials: allranks job show {job['name']}"
        raise UsageError(f"{job['name']} has no objective: nothing to compare", hint=hint)
    improvements = _improvements(job)
    if options.html is not None:
        _write(job, options.html)
    if options.json:
        keys = ("name", "status", "objective", "total_trials", "counts", "stopped_early", "best")
        facts: dict[str, object] = {key: value for key, value in job.items() if key in keys}
        facts["improvements"] = improvements
        facts["parameters"] = job["parameter_summary"]
        facts["trials"] = job["trials"]
        show.as_json(facts)
        return 0
    metric = metric_of(job)
    if not improvements:
        show.talk(f"no trial of {job['name']} has reported {metric!r} yet")
        return 0
    head = ("TRIAL", metric.upper(), "PARAMETERS")
    rows = [
        (improvement["job"], show.number(improvement["value"]), parameters(improvement))
        for improvement in improvements
    ]
    print("improvements of the best value:")
    show.columns(head, rows)
    if job["parameter_summary"]:
        print()
        show.columns(*parameters_table(job["parameter_summary"]))
    return 0


def _improvements(job: JobAnswer) -> list[TrialAnswer]:
    """The trials that were the best so far, in the order of their numbers."""
    objective, best = job["objective"], None
    maximize = objective is not None and objective["goal"] == "maximize"
    improvements = []
    for trial in sorted(job["trials"], key=lambda trial: int(trial["number"])):
        value = trial["value"]
        if value is None or trial["status"] == "Failed":
            continue
        if best is None or (value > best if maximize else value < best):
            best = value
            improvements.append(trial)
    return improvements


def _write(job: JobAnswer, file: Path) -> None:
    from allranks.cli.report.sweep_page import sweep_page  # lazy: only for a page

    if not file.absolute().parent.is_dir():
        hint = f"create it: mkdir -p {file.parent}"
        raise UsageError("folder not found", where=str(file.parent), hint=hint)
    metric = metric_of(job)
    page = sweep_page(job, *trials_table(job["trials"], metric))
    file.write_text(page, encoding="utf-8")
