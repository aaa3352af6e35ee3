"""`allranks job restart`: run an ended job again, from what it left."""

from __future__ import annotations

import argparse
from typing import Any

from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.cli.submit.send import asking, large_code_option, print_carried, sending
from allranks.sdk.submit import restart as restarting


def restart_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    fresh = "begin with empty outputs and an empty state, not with what the job has left"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    code = "run this folder, file or repository instead of the job's code; the rest stays"
    parser.add_argument("-C", "--code", metavar="DIR", help=code)
    large_code_option(parser.add_argument)
    parser.add_argument("--stream", action="store_true", help="follow it to its end")


def restart(options: argparse.Namespace) -> int:
    def note(sentence: str) -> None:
        if not options.quiet:
            show.talk(f"note: {sentence}")

    line = ProgressLine(options.quiet)

    def restarted(allow: bool) -> dict[str, Any]:
        return restarting.restart(
            options.name,
            fresh=options.fresh,
            code=options.code,
            note=line.before(note),
            allow_large=allow,
            progress=line.report,
        )

    with sending(line):
        job = asking(options, restarted)
    if options.stream:
        from allranks.cli.submit.run import after_submit  # lazy: most restarts are left alone

        return after_submit(
            job, detach=False, json=options.json, quiet=options.quiet, own_code=False
        )
    if options.json:
        show.as_json(job)
        return 0
    print(job["name"], flush=True)
    if not options.quiet:
        print_carried(job)
        show.talk(f"follow it: allranks job stream {job['name']}")
    return 0
