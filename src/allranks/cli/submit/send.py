"""Submit a job from the command line, and follow it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from allranks.cli.output import show
from allranks.cli.output.interrupts import Interrupts, act_on_interrupt
from allranks.cli.output.sending import confirm_large_code, confirm_large_data, sending
from allranks.core.amounts import counted
from allranks.core.job.shell_variables import dropped, sentence
from allranks.sdk.connection import find_server
from allranks.sdk.submit.current_environment import is_current
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.send import send

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import CreatedJob, JobAnswer, RestartedJob


def submit(
    options: argparse.Namespace, spec: Document, base: Path, start_from: str | None = None
) -> CreatedJob:
    """Submit a job and return it as the server shows it; ``start_from`` names the job to continue.

    On a terminal, asks before it sends a large code folder. An interrupted submission leaves no
    code on the server; Ctrl-C after that is kept for ``act_on_interrupt``.
    """
    with sending(options) as (line, note):

        def prepared(allow: bool) -> Any:
            return prepare(
                spec,
                base,
                in_place=options.in_place,
                note=note,
                allow_large=allow,
                progress=line.report,
            )

        submission, snapshots = confirm_large_code(options, prepared)
        options.interrupts = Interrupts(submission["spec"]["name"])
        if start_from:
            submission["continues"] = start_from
        if names := _dropped_variables(submission):
            if hasattr(options, "env_all"):
                mend = (
                    "pass one with --env NAME, all but secrets with --env-all, or set "
                    "ALLRANKS_PASS_ENV"
                )
            else:
                mend = "list them in `environment_variables` or in ALLRANKS_PASS_ENV"
            note(sentence(names, mend))

        def sent(allow: bool) -> CreatedJob:
            client = find_server.connect()
            made: CreatedJob = send(
                client,
                submission,
                snapshots,
                line.report,
                allow_large_data=allow,
                note=note,
                asking=options.interrupts,
            )
            # lazy: the job starts meanwhile
            from allranks.sdk.submit.script_notes import script_notes

            made["notes"] += script_notes(client, submission, made)
            return made

        return confirm_large_data(options, sent)


def outputs_here(spec: Document, base: Path) -> tuple[Document, dict[str, str]]:
    """See ``apart``."""
    if not spec.get("outputs"):
        return spec, {}
    from allranks.sdk.upload.outputs import apart  # lazy: few jobs have any

    return apart(spec, base)


def note_outputs(job: CreatedJob, folders: Mapping[str, str]) -> None:
    """Note for the user how to get outputs that a detached job leaves on the server."""
    if folders:
        from allranks.sdk.upload.outputs import notes  # lazy: as above

        job["notes"] += notes(job["name"], folders)


def _dropped_variables(submission: Mapping[str, Any]) -> list[str]:
    spec = submission["spec"].get("trial") or submission["spec"]
    if spec.get("type") == "pipeline":
        return []  # each step says what it needs
    passed = {*submission["base"], *(spec.get("environment_variables") or {})}
    if not is_current(spec.get("environment")):
        passed -= {"PYTHONPATH"}  # it has another Python's modules
    return dropped(os.environ, passed)


def after_submit(
    options: argparse.Namespace,
    job: CreatedJob | RestartedJob,
    *,
    detach: bool,
    cancel: bool = False,
    **view: Any,
) -> int:
    """Print what was submitted, and unless ``detach`` stream it until it ends.

    Returns the job's exit code. For ``cancel`` and ``view`` see ``follow_to_end``.
    """
    name, quiet = job["name"], options.quiet
    if not quiet:
        if restarted := cast("RestartedJob", job).get("restarted"):
            show.talk(show.one_line(restarted["message"]))
        for note in (*job["notes"], *job["environment"].get("notes", ())):
            show.talk(f"note: {note}")
        if continued := job["carried"]:
            show.talk(show.one_line(f"{name} {continued['message']}"))
            for note in continued["notes"]:
                show.talk(show.one_line(f"note: {note}"))
    if detach:
        show.as_json(job) if options.json else show.line(name)
        if not options.json and not quiet:
            show.talk(f"to follow it: allranks job stream {name}")
        act_on_interrupt(options)
        return 0
    from allranks.cli.job.follow_or_detach import follow_to_end  # lazy: not if detached

    if not quiet:
        show.talk(f"{name}: {_size(job)}{_page(job)}")
    folder = getattr(options, "download", None)  # not of every command
    return follow_to_end(options, job, cancel=cancel, folder=folder, **view)


def _size(job: JobAnswer) -> str:
    if job["type"] == "sweep":
        total = job["total_trials"]
        together = job["spec"]["limits"].get("max_concurrent_trials") or total
        return f"{total} trials, {together} at a time"
    return counted(job["total_steps"], "step") if job["type"] == "pipeline" else show.size(job)


def _page(job: CreatedJob | RestartedJob) -> str:
    """The address of the job's page, if the server has one."""
    page = cast("CreatedJob", job).get("page")
    if not page:
        return ""
    with find_server.connect() as client:
        return f", {client.url.rstrip('/')}{page}"
