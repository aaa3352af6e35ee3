"""`--dry-run`: print the plan as JSON or text, without starting anything, not even a server."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import settings
from allranks.cli.output import show
from allranks.core.job import rank_variables
from allranks.core.job.report import report
from allranks.core.packing import pack
from allranks.core.plan import Plan
from allranks.masking import all_without_credentials, without_credentials
from allranks.sdk.connection import find_server
from allranks.sdk.submit.prepare import prepare
from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.assets.read_only_home import read_only_home
from allranks.server.parents.pipeline.create import pipeline_plan
from allranks.server.parents.sweep.create import trial_plan
from allranks.server.submission.submit import Submission, plan
from allranks.spec.job_type import job_type

if TYPE_CHECKING:
    from allranks.api.common import Packed


def dry_run(
    spec: Mapping[str, Any],
    base: Path,
    *,
    in_place: bool = False,
    json: bool,
    allow_large: bool = False,
) -> int:
    """Print the plan of a job by this machine's home; of a sweep, that of its first trial, of a
    pipeline those of its steps. Raises what submitting raises."""
    if server := find_server.of_another_home():
        show.talk(f"note: planned with the computes and assets of this machine, not of {server}")
    submission, _ = prepare(spec, base, in_place=in_place, allow_large=allow_large)
    kind = job_type(submission["spec"])
    with read_only_home(settings.home()) as assets:
        if kind == "pipeline":
            return _pipeline(Submission.load(submission), assets, json)
        if kind == "sweep":
            _, job = trial_plan(Submission.load(submission), assets)
        else:
            job = plan(Submission.load(submission), assets)
        rendered = assets.clusters.engine(assets.clusters.cluster(job)).render(job.gang)
    shown = report(job, rendered, submission["spec"])
    if json:
        show.as_json(shown)
    else:
        _print(shown)
    return 0


def _pipeline(submission: Submission, assets: PlanningAssets, json: bool) -> int:
    """Print the steps of a pipeline in the order they run."""
    _, steps = pipeline_plan(submission, assets)
    listing = [
        {
            "step": step.name,
            "type": step.type,
            "component": step.component or None,
            "after": list(step.after),
            "inputs": all_without_credentials(dict(step.inputs)),
            "plan": _shown_plan(steps.plans.get(step.name)),
        }
        for step in steps.values()
    ]
    if json:
        show.as_json({"name": submission.spec["name"], "steps": listing})
        return 0
    for entry in listing:
        after = f", after {', '.join(entry['after'])}" if entry["after"] else ""
        show.line(f"{entry['step']}: {entry['type']}{after}")
        if entry["plan"]:
            _print_text(entry["plan"]["task"]["command"])
    return 0


def _shown_plan(made: Plan | None) -> Packed | None:
    if made is None:
        return None
    task = made.task._replace(command=without_credentials(made.task.command), base={}, tools={})
    return {"compute": made.compute, "engine": made.engine, "task": pack(task)}


def _print(report: Mapping[str, Any]) -> None:
    gang, task = report["gang"], report["task"]
    show.line(f"job        {report['name']}  (plan {report['digest'][:12]})")
    rendered = report["rendered"]
    if "\n" in rendered:
        show.line(f"compute    {report['compute']}, engine {report['engine']}, which receives:")
        show.line("")
        _print_text(rendered)
        show.line("")
    else:
        show.line(f"engine     {report['engine']}: {rendered}")
    needs = {name: gang[name] for name in ("gpus", "cpus", "memory") if gang[name]}
    show.line(f"nodes      {gang['nodes']}  {needs or ''}".rstrip())
    if report["instance_type"]:
        show.line(f"size       {report['instance_type']}")
    for note in report["notes"]:
        show.line(f"note       {note}")
    code = task["in_place"] or (f"snapshot {task['code'][:12]}" if task["code"] else "none")
    show.line(f"code       {code}")
    if recipe := task["recipe"]:
        show.line(f"python     {recipe['python'] or 'the current one'}, in an environment with:")
        for line in (*recipe["requirements"], *recipe["constraints"]):
            show.line(f"             {line}")
        for note in recipe["notes"]:
            show.line(f"note       {note}")
    if report["container"]:
        show.line(f"container  {shlex.join(report['container'])}")
    if report["launcher"]:
        show.line(f"launcher   {' '.join(report['launcher'])}")
    print("\neach node's agent reports its address and ports when it is ready\n")
    for line in rank_variables.lines(report["ranks"], show.table):
        print(line)


def _print_text(text: str) -> None:
    for line in show.safe_lines(textwrap.indent(text.rstrip(), "    ")):
        print(line)
