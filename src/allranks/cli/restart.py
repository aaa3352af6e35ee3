"""`allranks job restart`, and what is said of a job that continues another one."""

from __future__ import annotations

import argparse
from typing import Any

from allranks.cli import show
from allranks.cli.job_names import job_argument
from allranks.cli.submitting import large_code_option
from allranks.sdk import restarting


def restart_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    fresh = "begin with empty outputs and an empty state, not with what the job has left"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    code = "run this folder, file or repository instead of the job's code; the rest stays"
    parser.add_argument("-C", "--code", metavar="DIR", help=code)
    large_code_option(parser.add_argument)


def restart(options: argparse.Namespace) -> int:
    def note(sentence: str) -> None:
        if not options.quiet:
            show.talk(f"note: {sentence}")

    job = restarting.restart(
        options.name,
        fresh=options.fresh,
        code=options.code,
        note=note,
        allow_large=options.allow_large_code,
    )
    if options.json:
        show.as_json(job)
        return 0
    print(job["name"], flush=True)
    if not options.quiet:
        tell_carried(job)
        show.talk(f"follow it: allranks job stream {job['name']}")
    return 0


def tell_carried(job: dict[str, Any]) -> None:
    """What the job starts with of another one, if it does."""
    if carried := job.get("carried"):
        show.talk(show.one_line(f"{job['name']} {carried['message']}"))
        for each in carried["notes"]:
            show.talk(show.one_line(f"note: {each}"))
