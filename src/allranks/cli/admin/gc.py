"""`allranks gc`: delete what no job needs any more."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

from allranks.api import routes
from allranks.cli.output import show
from allranks.core.amounts import counted, size_text
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.spec.fields.durations import EXAMPLES, UNITS, seconds_of

_MOST = 36500 * UNITS["d"]
# Seconds: there may be much to delete, on a slow disk.
_TIMEOUT = 6 * 3600.0


def gc_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dry-run", action="store_true", help="list what would be deleted, delete nothing")
    older = "keep what was used since then: days, or as in 90m, 12h, 30d, 4w (30)"
    add("--older-than", default="30", metavar="DAYS", help=older)
    jobs = "also delete jobs that ended before then, with outputs and logs"
    add("--jobs", action="store_true", help=jobs)
    show.yes_option(add)
    parser.epilog = "Exit 1 when something could not be deleted."


def gc(options: argparse.Namespace) -> int:
    """Delete environments, code, checkouts and working folders that no job needs."""
    request = {
        "older_than_seconds": _seconds(options.older_than),
        "dry_run": options.dry_run,
        "jobs": options.jobs,
    }
    what = "ended jobs and unreferenced data" if options.jobs else "unreferenced data"
    age = options.older_than + " days" * options.older_than.isdecimal()
    question = f"delete {what} that nothing used for {age} (--dry-run lists it)"
    if not options.dry_run and not show.may_destroy(options, question):
        return 1
    client = find_server.connect()
    line = show.StatusLine(options.quiet or options.json)
    line.say("looking for unreferenced data")
    try:
        report = client.ask(routes.collect_garbage, body=request, patience=_TIMEOUT)
    finally:
        line.clear()
    if options.json:
        show.as_json(report)
    else:
        _print_report(report, options)
    return 1 if report["failed"] else 0


def _seconds(text: str) -> float:
    """Of a bare number in days. Raises UsageError."""
    try:
        seconds = seconds_of(text, "d")
    except ValueError:
        seconds = math.inf
    if seconds > _MOST:
        hint = f"give a number of days, or {EXAMPLES}"
        raise UsageError(f"{text!r} is not a duration", where="--older-than", hint=hint)
    return seconds


def _print_report(report: Mapping[str, Any], options: argparse.Namespace) -> None:
    items = report["items"]
    if items and options.dry_run:
        rows = [(e["kind"], size_text(e["bytes"]), e["why"], e["path"]) for e in items]
        show.columns(("WHAT", "SIZE", "WHY", "WHERE"), rows)
        print()
    if items:
        sizes: dict[str, list[int]] = {}
        for item in items:
            sizes.setdefault(item["kind"], []).append(item["bytes"])
        totals = [(kind, str(len(each)), size_text(sum(each))) for kind, each in sizes.items()]
        total = ("total", str(len(items)), size_text(report["bytes"]))
        show.columns(("WHAT", "COUNT", "SIZE"), [*totals, total])
    if options.dry_run:
        print()
        kept = [(e["kind"], size_text(e["bytes"]), e["why"]) for e in report["kept"]]
        home = ("total of the home", size_text(report["home_bytes"]), "deleted and kept data")
        show.columns(("KEPT", "SIZE", "WHY"), [*kept, home])
    for failure in report["failed"]:
        show.talk(f"cannot delete {failure['path']}: {failure['message']}")
    if report["failed"]:
        show.talk("\nhint: check who owns these and may write there, then run it again")
    elif not options.quiet:
        show.talk(_summary(report, options))
    if (recent := report.get("recent_jobs", 0)) and not options.quiet:
        which = f"{counted(recent, 'job')} that ended less than a minute ago or still end"
        show.talk(f"note: {which} cannot be deleted yet; run it again in a minute")


def _summary(report: Mapping[str, Any], options: argparse.Namespace) -> str:
    if not report["items"]:
        return "nothing to delete"
    size = size_text(report["bytes"])
    if options.dry_run:
        return f"nothing deleted; without --dry-run this frees {size}"
    return f"freed {size}"
