"""`allranks job explain`: why a job failed, and what changed since the last success."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from allranks.api import routes
from allranks.cli.job.follow_or_detach import earlier_attempts
from allranks.cli.job_names import job_argument
from allranks.cli.output import rank_table, show
from allranks.cli.output.tables import cut
from allranks.core.amounts import counted
from allranks.core.node_names import node_name
from allranks.errors import Conflict, UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api import jobs as api
    from allranks.http_client import Client

# The number of ranks whose end is shown.
_MOST = 8
_WIDE = 200
# Characters of the error's sentence, which may name many packages.
_LONG = 2000


def explain_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)


def explain(options: argparse.Namespace) -> int:
    """Of a parent: also of the first child that failed."""
    client = find_server.connect()
    job = client.ask(routes.show_job, options.name)
    if job["type"] == "sweep":
        return _explain_sweep(client, job, options)
    slow: list[api.SlowRank] = job.get("slow_ranks") or []
    try:
        explanation = client.ask(routes.job_explanation, options.name)
    except Conflict:
        if not slow:
            raise
        return _explain_slow(slow, options)
    if options.json:
        show.as_json(explanation)
    elif "type" in explanation:
        _show(_of_steps(explanation))
        steps = explanation["steps"].values() if "steps" in explanation else ()
        failed = [step["job"] for step in steps if step["status"] == "Failed" and step["job"]]
        if failed:
            _explain_child(client, failed[0], options.quiet)
        elif explanation["error"] and not options.quiet:
            show.talk(f"\nhint: {explanation['error']['hint']}")
    else:
        _show(_of_job(explanation))
        _show(iter(earlier_attempts(explanation["name"], explanation["attempt"])))
        for notice in rank_table.notices(slow):
            show.line(f"slow before that: {notice}")
        if not options.quiet:
            show.talk(f"\nhint: {explanation['fix']}")
    return 0


def _explain_slow(slow: list[api.SlowRank], options: argparse.Namespace) -> int:
    """A job that has not failed: who holds the others of it."""
    if options.json:
        show.as_json({"name": options.name, "slow_ranks": slow})
        return 0
    _show(iter(rank_table.notices(slow)))
    if slow[-1]["hint"] and not options.quiet:
        show.talk(f"\nhint: {slow[-1]['hint']}")
    return 0


def _explain_sweep(client: Client, sweep: api.JobAnswer, options: argparse.Namespace) -> int:
    """How many trials failed, and why the first of them. Raises UsageError if none did."""
    trials: list[api.TrialAnswer] = sweep["trials"]
    failed = [trial["job"] for trial in trials if trial["status"] == "Failed"]
    if not failed:
        message = f"no trial of {sweep['name']} has failed"
        raise UsageError(message, hint=f"allranks job show {sweep['name']}")
    if options.json:
        show.as_json(client.ask(routes.job_explanation, failed[0]))
        return 0
    if sweep["error"]:
        show.line(f"{sweep['name']} failed: {cut(sweep['error']['message'], _LONG)}")
    show.line(f"{len(failed)} of {counted(len(trials), 'trial')} failed; the first of them:")
    _explain_child(client, failed[0], options.quiet)
    return 0


def _explain_child(client: Client, name: str, quiet: bool) -> None:
    explanation = cast("api.FailureExplanation", client.ask(routes.job_explanation, name))
    show.line("")
    _show(_of_job(explanation))
    _show(iter(earlier_attempts(name, explanation["attempt"])))
    if not quiet:
        show.talk(f"\nhint: {explanation['fix']}")


def _show(lines: Iterator[str]) -> None:
    for line in lines:
        show.line(line)


def _of_steps(explanation: api.PipelineExplanation | api.StepExplanation) -> Iterator[str]:
    """A pipeline with why each of its steps ran, or one step."""
    if "why" in explanation:
        yield f"{explanation['name']}: {explanation['why']}"
        return
    if explanation["error"]:
        yield f"{explanation['name']} failed: {cut(explanation['error']['message'], _LONG)}"
    for name, step in explanation["steps"].items():
        yield f"{name}: {cut(step['why'], _WIDE)}"


def _of_job(failure: api.FailureExplanation) -> Iterator[str]:
    if failure["error"]:
        yield f"{failure['name']} failed: {cut(failure['error']['message'], _LONG)}"
    if failure["cause"] != "UNKNOWN":
        yield f"cause: {failure['explanation']} ({failure['cause']})"
        yield f"       {_AGAIN[failure['retryable']]}"
    yield from _evidence(failure)
    yield from _followed(failure["followed"])
    yield from _changed(failure)
    if failure["seen_before"]:
        names = ", ".join(failure["seen_in"][:3])
        yield ""
        before, where = failure["seen_before"], failure["experiment_name"]
        yield f"{counted(before, 'earlier job')} of {where} failed the same way: {names}"


_AGAIN = {
    True: "running the same job again may succeed",
    False: "nothing says that running the same job again would help",
    None: "it is unknown whether running it again would fail",
}


def _evidence(failure: api.FailureExplanation) -> Iterator[str]:
    evidence = failure["evidence"]
    error = failure["error"]
    if evidence is None or evidence["line"] not in "\n".join(failure["lines"]):
        if evidence is not None and (error is None or error["message"] != evidence["line"]):
            yield ""
            yield f"told by: {cut(evidence['line'], _WIDE)}"
        if failure["lines"]:
            yield ""
            yield f"the last lines of rank {failure['rank']}:"
        for line in failure["lines"]:
            yield f"   {cut(line, _WIDE)}"
        return
    if error is not None and error["message"] == evidence["line"]:
        return
    yield ""
    number = f", line {evidence['number']} of its log" if evidence["number"] else ""
    at = f", raised at {evidence['where']}" if evidence["where"] else ""
    node = node_name(evidence["node"], evidence.get("host"))
    yield f"rank {evidence['rank']} on {node}{number}{at}:"
    for line in failure["lines"]:
        mark = ">" if line.strip() == evidence["line"] else " "
        yield f" {mark} {cut(line, _WIDE)}"


def _followed(others: list[api.RankOutcome]) -> Iterator[str]:
    if others:
        yield ""
        yield "the other ranks, in the order in which they ended:"
    for outcome in others[:_MOST]:
        node = node_name(outcome["node"], outcome.get("host"))
        yield f"  rank {outcome['rank']} on {node} {cut(outcome['said'], _WIDE)}"
    if len(others) > _MOST:
        yield f"  and {len(others) - _MOST} more"


def _changed(failure: api.FailureExplanation) -> Iterator[str]:
    yield ""
    other, changes = failure["compared_with"], failure["changed"]
    if other is None:
        yield f"no earlier job of {failure['experiment_name']} that runs the same completed"
        return
    since = f"since {other} completed"
    if other != failure["last_completed"]:
        since = f"since {other}, which this job restarts"
    if not changes:
        yield f"no recorded changes {since}"
        return
    yield f"changed {since}:"
    for change in changes:
        before, after = change["before"] or "nothing", change["after"] or "gone"
        text = f"{before} -> {after}" if change["before"] not in ("", "there") else after
        yield f"  {change['what']}: {cut(text, _WIDE)}"
