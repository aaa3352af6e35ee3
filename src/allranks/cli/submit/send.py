"""Submitting a job from the command line: large code folders, progress, and being interrupted."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.errors import CodeTooLarge
from allranks.masking import PASSED_ON
from allranks.plan.job.shell_variables import dropped, passed_by_default, sentence
from allranks.sdk.connection import find_server
from allranks.sdk.submit.submission import prepare, send

T = TypeVar("T")


def large_code_option(add: Callable[..., Any]) -> None:
    large = "send a code folder of more than 500 MB or 20,000 files"
    add("--allow-large-code", action="store_true", help=large)


def submit(
    options: argparse.Namespace,
    spec: dict[str, Any],
    base: Path,
    note: Callable[[str], None],
    start_from: str | None = None,
) -> dict[str, Any]:
    """The job as the server shows it; ``start_from`` names the job that it continues.

    On a terminal, asks whether a large code folder is meant.

    What ends this command while code is being sent leaves none of it on the server.
    """
    line = ProgressLine(options.quiet)
    noted = line.before(note)

    def prepared(allow: bool) -> Any:
        return prepare(
            spec,
            base,
            in_place=options.in_place,
            note=noted,
            allow_large=allow,
            progress=line.report,
        )

    with sending(line):
        submission, snapshot = asking(options, prepared)
        if start_from:
            submission["continues"] = start_from
        if names := _dropped(submission):
            noted(sentence(names, _mend(options)))
        return send(find_server.connect(), submission, snapshot, line.report)


def asking(options: argparse.Namespace, prepared: Callable[[bool], T]) -> T:
    """What is ``prepared`` (whether large code is allowed); of a large code folder a terminal asks
    whether it is meant. Raises CodeTooLarge."""
    try:
        return prepared(options.allow_large_code)
    except CodeTooLarge as error:
        if options.json or options.quiet or not _agreed(error):
            raise
        return prepared(True)


def with_shell_variables(spec: dict[str, Any]) -> dict[str, Any]:
    """The job with the variables that ALLRANKS_PASS_ENV names; its own ones win. Like those of
    ``--env KEY`` their values are masked in the record."""
    passed = passed_by_default(os.environ.get("ALLRANKS_PASS_ENV", ""), os.environ)
    own = spec.get("environment_variables") or {}
    new = [name for name in passed if name not in own]
    if not new or not isinstance(own, Mapping):
        return spec
    properties = spec.get("properties") or {}
    names = [each for each in str(properties.get(PASSED_ON) or "").split(",") if each]
    return {
        **spec,
        "environment_variables": {**passed, **own},
        "properties": {**properties, PASSED_ON: ",".join([*names, *new])},
    }


def _dropped(submission: Mapping[str, Any]) -> list[str]:
    spec = submission["spec"]
    passed = {*submission["base"], *(spec.get("environment_variables") or {})}
    if spec.get("environment") not in (None, "current", "azureml:current@latest"):
        passed -= {"PYTHONPATH"}  # of another Python's modules
    return dropped(os.environ, passed)


def _mend(options: argparse.Namespace) -> str:
    if hasattr(options, "env_all"):
        return "--env NAME passes one on, --env-all all but secrets, ALLRANKS_PASS_ENV always"
    return "name them in `environment_variables`, or in ALLRANKS_PASS_ENV"


def print_carried(job: dict[str, Any]) -> None:
    """What the job starts with of another one, if it does."""
    if carried := job.get("carried"):
        show.talk(show.one_line(f"{job['name']} {carried['message']}"))
        for each in carried["notes"]:
            show.talk(show.one_line(f"note: {each}"))


def _agreed(error: CodeTooLarge) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    show.talk(str(error))
    print("send it all the same? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@contextmanager
def sending(line: ProgressLine) -> Iterator[None]:
    """While code is sent: SIGTERM is as Ctrl-C, and the line goes at the end."""
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        line.clear()
