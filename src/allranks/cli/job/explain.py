"""`allranks job explain`: why a job failed, and what changed since the last success."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.plan.amounts import counted
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path

if TYPE_CHECKING:
    from allranks.api.jobs import (
        FailureExplanation,
        PipelineExplanation,
        RankOutcome,
        StepExplanation,
    )

# The number of ranks whose end is shown.
_MOST = 8
_WIDE = 200


def explain_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)


def explain(options: argparse.Namespace) -> int:
    found: FailureExplanation | PipelineExplanation | StepExplanation
    found = find_server.connect().json("GET", job_path(options.name, "/explanation"))
    if options.json:
        show.as_json(found)
        return 0
    if "type" in found:
        for line in _of_steps(found):
            show.line(line)
        return 0
    for line in _told(found):
        show.line(line)
    if not options.quiet:
        show.talk(f"\nhint: {found['fix']}")
    return 0


def _of_steps(found: PipelineExplanation | StepExplanation) -> Iterator[str]:
    """A pipeline with why each of its steps ran, or one step."""
    if "why" in found:
        yield f"{found['name']}: {found['why']}"
        return
    if found["error"]:
        yield f"{found['name']} failed: {found['error']['message'][:_WIDE]}"
    for name, each in found["steps"].items():
        yield f"{name}: {each['why'][:_WIDE]}"
    failed = [each["job"] for each in found["steps"].values() if each["status"] == "Failed"]
    if failed:
        yield ""
        yield f"why the step failed: allranks job explain {failed[0]}"


def _told(found: FailureExplanation) -> Iterator[str]:
    if found["error"]:
        yield f"{found['name']} failed: {found['error']['message'][:_WIDE]}"
    yield f"cause: {found['explanation']} ({found['cause']})"
    yield f"       {_AGAIN[found['retryable']]}"
    yield from _evidence(found)
    yield from _followed(found["followed"])
    yield from _changed(found)
    if found["seen_before"]:
        names = ", ".join(found["seen_in"][:3])
        yield ""
        before, where = found["seen_before"], found["experiment_name"]
        yield f"{counted(before, 'earlier job')} of {where} failed the same way: {names}"


_AGAIN = {
    True: "running the same job again may succeed",
    False: "running the same job again would fail the same way",
    None: "it is unknown whether running it again would fail",
}


def _evidence(found: FailureExplanation) -> Iterator[str]:
    evidence = found["evidence"]
    if evidence is None:
        return
    yield ""
    if evidence["rank"] is None or not found["lines"]:
        yield f"told by: {evidence['line'][:_WIDE]}"
        return
    number = f", line {evidence['number']} of its log" if evidence["number"] else ""
    at = f", raised at {evidence['where']}" if evidence["where"] else ""
    yield f"rank {evidence['rank']} on node {evidence['node']}{number}{at}:"
    for line in found["lines"]:
        mark = ">" if line.strip() == evidence["line"] else " "
        yield f" {mark} {line[:_WIDE]}"


def _followed(others: list[RankOutcome]) -> Iterator[str]:
    if others:
        yield ""
        yield "the other ranks, in the order in which they ended:"
    for each in others[:_MOST]:
        yield f"  rank {each['rank']} on node {each['node']} {each['said'][:_WIDE]}"
    if len(others) > _MOST:
        yield f"  and {len(others) - _MOST} more"


def _changed(found: FailureExplanation) -> Iterator[str]:
    yield ""
    other, changes = found["compared_with"], found["changed"]
    if other is None:
        yield f"no earlier job of {found['experiment_name']} completed"
        return
    since = f"since {other} completed"
    if other != found["last_completed"]:
        since = f"since {other}, which this job restarts"
    if not changes:
        yield f"no recorded changes {since}"
        return
    yield f"changed {since}:"
    for each in changes:
        before, after = each["before"] or "nothing", each["after"] or "gone"
        told = f"{before} -> {after}" if each["before"] not in ("", "there") else after
        yield f"  {each['what']}: {told[:_WIDE]}"
