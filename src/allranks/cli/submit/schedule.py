"""`allranks schedule …`: jobs that are submitted again and again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.output.sending import (
    confirm_large_code,
    confirm_large_data,
    sending,
)
from allranks.cli.run_options import take
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.submit.shell_variables import with_shell_variables


def create_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-f", "--file", required=True, metavar="FILE", help="the schedule's YAML; - is stdin")
    add("--name", metavar="NAME", help="its name, instead of the file's")
    take(add, "--allow-large-code")
    take(add, "--allow-large-data")


def create(options: argparse.Namespace) -> int:
    """Create a schedule; its job's code and environment are those of now."""
    # lazy: reads YAML and imports the models
    from allranks.sdk.submit.prepare import prepare
    from allranks.sdk.submit.schedule import read_schedule
    from allranks.sdk.submit.send import send
    from allranks.spec.fields.problems import in_file

    file = Path(options.file)
    schedule, job, base, lines = read_schedule(file, options.name)
    spec = with_shell_variables(job)
    with sending(options) as (line, note):
        submission, snapshots = confirm_large_code(
            options,
            lambda allow: prepare(spec, base, note=note, allow_large=allow, progress=line.report),
        )
        submission["spec"].pop("name", None)
        body = {"schedule": schedule, "submission": submission}
        with in_file(options.file, lines):
            made = confirm_large_data(
                options,
                lambda allow: send(
                    find_server.connect(),
                    body,
                    snapshots,
                    line.report,
                    to=routes.create_schedule.at(),
                    allow_large_data=allow,
                    note=note,
                ),
            )
    when = f"first job: {_when(made['next_at'])}" if made["next_at"] else "it has no time left"
    if made["trigger"]["type"] == "manual":
        when = f"submit its job with: allranks schedule trigger {made['name']}"
    return show.result(options, made, f"{made['name']} is created; {when}")


def list_schedules_options(parser: argparse.ArgumentParser) -> None:
    del parser


def list_schedules(options: argparse.Namespace) -> int:
    rows = find_server.ask(routes.list_schedules)
    head = ("NAME", "STATUS", "WHEN", "NEXT", "LAST JOB", "MISSED")
    empty = "no schedules yet\n\nhint: allranks schedule create -f FILE"
    return show.listing(options, rows, head, [_row(row) for row in rows], empty)


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        each["name"],
        _status(each),
        _trigger(each["trigger"]),
        _when(each["next_at"]),
        each["last_job"] or ("failed" if each["last_error"] else "-"),
        str(each["missed"]) if each["missed"] else "-",
    )


def _status(each: Mapping[str, Any]) -> str:
    if not each["enabled"]:
        return "paused"
    return "active" if each["next_at"] or each["trigger"]["type"] == "manual" else "over"


def _trigger(trigger: Mapping[str, Any]) -> str:
    if trigger["type"] == "manual":
        return "manual"
    if trigger["type"] == "cron":
        text = str(trigger["expression"])
    else:
        many = "" if trigger["interval"] == 1 else f"{trigger['interval']} "
        text = f"every {many}{trigger['frequency']}{'s' if many else ''}"
    return text if trigger["time_zone"] == "UTC" else f"{text} ({trigger['time_zone']})"


def _when(at: str | None) -> str:
    """A time, and how far away it is."""
    if at is None:
        return "-"
    seconds = (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()
    return f"in {show.seconds(seconds)}" if seconds > 0 else "now"


def show_schedule_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a schedule")


def show_schedule(options: argparse.Namespace) -> int:
    made = find_server.ask(routes.show_schedule, options.name)
    if options.json:
        show.as_json(made)
        return 0
    fields = [
        ("name", made["name"]),
        *([("description", made["description"])] if made["description"] else []),
        ("status", _status(made)),
        ("when", _trigger(made["trigger"])),
        (
            "next",
            f"{show.moment(made['next_at'])} ({_when(made['next_at'])})"
            if made["next_at"]
            else "-",
        ),
        ("job", made["type"]),
        ("catch up", "yes" if made["catch_up"] else "no"),
        ("created", show.moment(made["created_at"])),
        (
            "last job",
            f"{made['last_job']} at {show.moment(made['last_at'])}" if made["last_job"] else "-",
        ),
    ]
    if made["last_error"]:
        fields.append(("last error", made["last_error"]))
    if made["missed"]:
        fields.append(
            ("missed", f"{made['missed']} times, last {show.moment(made['last_missed_at'])}")
        )
    for name, value in fields:
        show.field(name, value)
    return 0


pause_options = resume_options = trigger_options = show_schedule_options


def delete_options(parser: argparse.ArgumentParser) -> None:
    show_schedule_options(parser)
    show.yes_option(parser.add_argument)


def pause(options: argparse.Namespace) -> int:
    made = find_server.ask(routes.pause_schedule, options.name)
    return show.result(options, made, f"{made['name']} is paused")


def resume(options: argparse.Namespace) -> int:
    made = find_server.ask(routes.resume_schedule, options.name)
    return show.result(
        options, made, f"{made['name']} is active; next job: {_when(made['next_at'])}"
    )


def trigger(options: argparse.Namespace) -> int:
    """Submit the job of a schedule now; its times stay."""
    made = find_server.ask(routes.trigger_schedule, options.name)
    if made["last_error"]:
        raise UsageError(made["last_error"], hint=f"allranks schedule show {made['name']}")
    return show.result(options, made, f"submitted {made['last_job']}")


def delete(options: argparse.Namespace) -> int:
    if not show.may_destroy(options, f"delete the schedule {options.name}"):
        return 1
    made = find_server.ask(routes.delete_schedule, options.name)
    return show.result(options, made, f"{made['name']} is deleted; its jobs stay")
