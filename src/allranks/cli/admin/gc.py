"""`allranks gc`: clear a home of what nobody needs any more."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from allranks.cli.output import show
from allranks.errors import UsageError
from allranks.plan.amounts import size_text
from allranks.sdk.connection import find_server

_UNITS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_MOST_DAYS = 36500
# Seconds: much may have to be removed, from a slow disk.
_PATIENCE = 6 * 3600.0


def gc_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dry-run", action="store_true", help="show what would go, remove nothing")
    older = "what was used since then stays: days, or as in 12h, 30d, 4w (30)"
    add("--older-than", default="30", metavar="DAYS", help=older)
    jobs = "records of jobs that ended before that, too: outputs, logs and all"
    add("--jobs", action="store_true", help=jobs)
    parser.epilog = "Exit 0 when all went that was to go, 1 when something could not be removed."


def gc(options: argparse.Namespace) -> int:
    """Remove environments, code, checkouts and working folders that no job needs."""
    seconds = _seconds(options.older_than)
    asked = {"older_than_seconds": seconds, "dry_run": options.dry_run, "jobs": options.jobs}
    client = find_server.connect()
    line = show.StatusLine(options.quiet or options.json)
    line.say("looking for what nobody needs any more")
    try:
        done = client.call("POST", "/api/v1/gc", json.dumps(asked).encode(), timeout=_PATIENCE)
    finally:
        line.clear()
    told = json.loads(done.body)
    if options.json:
        show.as_json(told)
    else:
        _show(told, options)
    return 1 if told["failed"] else 0


def _seconds(text: str) -> float:
    """How long `30`, `12h`, `30d` or `4w` is. Raises UsageError."""
    plain = text.strip().lower()
    unit = _UNITS.get(plain[-1:])
    number = plain[:-1] if unit else plain
    try:
        found = float(number) * (unit or _UNITS["d"])
    except ValueError:
        found = -1.0
    if not 0 <= found <= _MOST_DAYS * _UNITS["d"]:
        raise UsageError(
            f"{text!r} is no length of time",
            where="--older-than",
            hint="days as a number, 0 or more, or as in 12h, 30d, 4w",
        )
    return found


def _show(told: Mapping[str, Any], options: argparse.Namespace) -> None:
    items = told["items"]
    if items and options.dry_run:
        show.columns(("WHAT", "SIZE", "WHY", "WHERE"), [_row(each) for each in items])
        print()
    if items:
        groups: dict[str, list[int]] = {}
        for each in items:
            groups.setdefault(each["kind"], []).append(each["bytes"])
        rows = [(kind, str(len(all_)), size_text(sum(all_))) for kind, all_ in groups.items()]
        total = ("all of it", str(len(items)), size_text(told["bytes"]))
        show.columns(("WHAT", "COUNT", "SIZE"), [*rows, total])
    if options.dry_run:
        print()
        stays = [(each["kind"], size_text(each["bytes"]), each["why"]) for each in told["kept"]]
        whole = ("the whole home", size_text(told["home_bytes"]), "what goes and what stays")
        show.columns(("STAYS", "SIZE", "WHY"), [*stays, whole])
    for each in told["failed"]:
        show.talk(f"could not be removed: {each['path']}: {each['message']}")
    if told["failed"]:
        show.talk("\nhint: see who owns that and who may write there; what is left is tried again")
    elif not options.quiet:
        show.talk(_summary(told, options))


def _row(item: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return item["kind"], size_text(item["bytes"]), item["why"], item["path"]


def _summary(told: Mapping[str, Any], options: argparse.Namespace) -> str:
    if not told["items"]:
        return "there is nothing that nobody needs"
    if options.dry_run:
        return f"nothing was removed; without --dry-run that frees {size_text(told['bytes'])}"
    return f"freed {size_text(told['bytes'])}"
