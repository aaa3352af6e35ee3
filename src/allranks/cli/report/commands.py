"""`allranks report …`: bottlenecks and scaling."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import rank_table, show
from allranks.cli.output.failure import why
from allranks.core.insights import scaling_text
from allranks.core.insights.amdahl import Fit
from allranks.core.insights.analyze import report as insights
from allranks.core.insights.scaling import Gain, Row, Scaling
from allranks.core.insights.scaling import scaling as compare
from allranks.core.packing import pack
from allranks.errors import Conflict, NotFound, UsageError
from allranks.http_client import Client
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.report_facts import observed

if TYPE_CHECKING:
    from allranks.api.jobs import JobRecord, ProfileAnswer


def report_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser, metavar="JOB")
    parser.epilog = (
        "`allranks report scaling JOB JOB …` compares runs of several sizes; "
        "`allranks report goodput JOB …` shows how the time was spent, "
        "`allranks report sweep SWEEP` how a sweep found its best trial. For a job "
        "named `scaling`: `allranks report -- scaling`."
    )


def report(options: argparse.Namespace) -> int:
    """The job's bottleneck with evidence, a fix and its expected gain."""
    with find_server.connect() as client:
        job = observed(client, options.name)
        record = client.ask(routes.show_job, options.name)
        profile = _profile(client, options.name)
    analysis, slow = insights(job), record.get("slow_ranks") or []
    if options.json:
        listed = [each._asdict() | {"kind": str(each.kind)} for each in analysis.insights]
        for entry in listed:
            del entry["verdict"]
        ended: dict[str, Any] = {key: record[key] for key in ("name", "status", "error")}
        more = {"used": analysis.used, "needed": analysis.needed}
        if profile is not None:
            ended["profile"] = profile["verdict"]
        if slow:
            ended["slow_ranks"] = slow
        show.as_json(ended | {"bottleneck": analysis.bottleneck, "insights": listed} | more)
        return 0
    for line in _ended(record):
        show.line(line)
    show.line(f"bottleneck: {analysis.bottleneck}")
    for insight in analysis.insights:
        show.line("")
        show.line(f"{insight.kind}: {insight.sentence}")
        for word, text in (("change", insight.hint), ("gain", insight.gain)):
            if text:
                show.line(f"  {word:<7} {text}")
    if profile is not None:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(profile["at"]))
        verdict: Any = profile["verdict"]
        print("\n" + show.one_line(f"profile of {at}: {verdict['kind']}: {verdict['message']}"))
    for notice in rank_table.notices(slow):
        print("\n" + show.one_line(f"slow rank: {notice}"))
    if analysis.used:
        print("\nduring training:")
    for sentence in analysis.used:
        show.line(f"  {sentence}")
    if not options.quiet:
        for sentence in analysis.needed:
            show.talk(f"\nfor more detail: {sentence}")
    return 0


def _profile(client: Client, name: str) -> ProfileAnswer | None:
    """The newest profile that somebody has taken of the job."""
    try:
        answer = client.ask(routes.show_profile, name)
    except NotFound:
        return None
    except Conflict as error:  # it is too large
        show.talk(f"note: {error}")
        return None
    return answer


def _ended(job: JobRecord) -> list[str]:
    """The job's status, and why it failed."""
    error = job["error"]
    if error is None:
        return [f"status: {job['status']}"]
    return [f"status: {job['status']}", f"error: {error['message']}", *why(error)]


# ---------------------------------------------------------------- scaling


def scaling_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    runs = "runs of the same work at several sizes"
    job_argument(parser, nargs="+", metavar="JOB", help=runs)
    add("--html", type=Path, metavar="FILE", help="also write figures and table as an HTML page")
    add("--png", type=Path, metavar="FILE", help="also write the figures as a PNG (matplotlib)")
    equal = "compare even if the runs differ in code, command or inputs"
    add("--assume-equal", action="store_true", help=equal)


def scaling(options: argparse.Namespace) -> int:
    """Times, speed-up and efficiency of runs of several sizes."""
    _to_be_written(options)
    with find_server.connect() as client:
        jobs = [observed(client, name) for name in dict.fromkeys(options.names)]
    comparison = compare(jobs, assume_equal=options.assume_equal)
    if comparison.rows and (options.html or options.png):
        _draw(comparison, options)
    if options.json:
        show.as_json(_as_json(comparison))
        return 0
    if comparison.rows:
        show.columns(scaling_text.head(comparison), scaling_text.table(comparison))
    lines = list(scaling_text.sentences(comparison))
    if lines:
        show.line("")
    for line in lines:
        show.line(line)
    for line in scaling_text.doubts(comparison):
        show.talk(f"warning: {line}")
    return 0


def _to_be_written(options: argparse.Namespace) -> None:
    """Raises UsageError if a folder does not exist or both files are the same."""
    if options.html and options.png and options.html.resolve() == options.png.resolve():
        hint = "use different files, as in --html runs.html --png runs.png"
        raise UsageError("--html and --png name the same file", where=str(options.png), hint=hint)
    for path in (options.html, options.png):
        if path is not None and not path.absolute().parent.is_dir():
            hint = f"create it: mkdir -p {path.parent}"
            raise UsageError("folder not found", where=str(path.parent), hint=hint)


def _draw(comparison: Scaling, options: argparse.Namespace) -> None:
    """Write the requested files; imports matplotlib only if needed."""
    from allranks.cli.report.figure import figure

    drawn = figure(comparison)
    if options.html:
        from allranks.cli.report.html_page import page

        text = page(
            drawn,
            scaling_text.head(comparison),
            scaling_text.table(comparison),
            scaling_text.sentences(comparison),
            scaling_text.doubts(comparison),
        )
        options.html.write_text(text, encoding="utf-8")
    if options.png:
        from allranks.cli.report import picture

        picture.write(drawn, options.png)


def _as_json(comparison: Scaling) -> dict[str, Any]:
    work = {"same": str(comparison.work.same), "reasons": list(comparison.work.reasons)}
    return {
        "unit": comparison.unit,
        "work": work,
        "runs": [_run(row) for row in comparison.rows],
        "fit": comparison.fit and _fit(comparison.fit),
        "next": pack(comparison.next),
        "warnings": list(comparison.warnings),
    }


def _run(row: Row) -> dict[str, Any]:
    gains = {"gain": _gain(row.gain), "whole_gain": _gain(row.whole_gain)}
    derived = {name: getattr(row, name) for name in ("overhead", "whole", "throughput")}
    return row._asdict() | derived | gains


def _gain(gain: Gain | None) -> dict[str, float] | None:
    return gain and gain._asdict()


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "fixed": fit.fixed,
        "fixed_interval": pack(fit.fixed_interval),
        "shared": fit.shared,
        "shared_interval": pack(fit.shared_interval),
        "most": fit.most,
        "note": fit.note or None,
    }
