"""`allranks job restart`: go on with an ended job, or run it anew."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from allranks.cli.job_names import job_argument
from allranks.cli.output.sending import confirm_large_code, confirm_large_data, sending
from allranks.cli.run_options import take
from allranks.cli.submit.send import after_submit
from allranks.sdk.submit import restart as restarting

if TYPE_CHECKING:
    from allranks.api.jobs import RestartedJob


def restart_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    choice = parser.add_mutually_exclusive_group().add_argument
    resume = "start with copies of its outputs and state, also if it completed"
    choice("--resume", action="store_true", help=resume)
    fresh = "start with none of its files, also if it did not complete"
    choice("--fresh", action="store_true", help=fresh)
    add = parser.add_argument
    clean = "start with a clean working folder, without the files that the job left in its own"
    take(add, "--fresh-work", help=clean)
    code = "run this folder, file or repository instead of the job's code"
    take(add, "--code", help=code)
    take(add, "--allow-large-code")
    take(add, "--allow-large-data")
    change = "change a key of the job, such as inputs.lr=0.1 (repeatable; paths are absolute)"
    take(add, "--set", help=change)
    take(add, "--trials", help="of a sweep: continue to this number of trials")
    take(add, "--concurrent", help="of a sweep: trials at a time from now on")
    add("--stream", action="store_true", help="stream the job and exit with its exit code")


def restart(options: argparse.Namespace) -> int:
    limits = {"max_total_trials": options.trials, "max_concurrent_trials": options.concurrent}
    limits = {key: value for key, value in limits.items() if value is not None}
    overrides = [*options.set, *(["retry.fresh_work=true"] if options.fresh_work else [])]
    with sending(options) as (line, note):

        def restarted(allow: bool, allow_data: bool) -> RestartedJob:
            return restarting.restart(
                options.name,
                resume=options.resume,
                fresh=options.fresh,
                code=options.code,
                limits=limits,
                overrides=overrides,
                note=note,
                allow_large=allow,
                allow_large_data=allow_data,
                progress=line.report,
            )

        job = confirm_large_data(
            options,
            lambda data: confirm_large_code(options, lambda code: restarted(code, data)),
        )
    return after_submit(options, job, detach=not options.stream)
