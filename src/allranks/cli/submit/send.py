"""Submitting a job from the command line: large code folders, progress, and being interrupted."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allranks.cli.output import show
from allranks.errors import CodeTooLarge
from allranks.masking import PASSED_ON
from allranks.plan.job.shell_variables import dropped, passed_by_default, sentence
from allranks.sdk.connection import find_server
from allranks.sdk.submit.submission import prepare, send

# Seconds between two states of the progress line.
_EVERY = 0.1


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
    progress = _Progress(options.quiet)

    def prepared(allow: bool) -> Any:
        return prepare(
            spec,
            base,
            in_place=options.in_place,
            note=progress.before(note),
            allow_large=allow,
            progress=progress,
        )

    try:
        try:
            submission, snapshot = prepared(options.allow_large_code)
        except CodeTooLarge as error:
            if options.json or options.quiet or not _agreed(error):
                raise
            submission, snapshot = prepared(True)
        if start_from:
            submission["continues"] = start_from
        if names := _dropped(submission):
            progress.before(note)(sentence(names, _mend(options)))
        with _terminated_as_interrupted():
            return send(find_server.connect(), submission, snapshot, progress)
    finally:
        progress.clear()


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


def tell_carried(job: dict[str, Any]) -> None:
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
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM as Ctrl-C."""
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """One line on a terminal that says how much of the code is read and sent."""

    def __init__(self, quiet: bool) -> None:
        self._line = show.StatusLine(quiet)
        self._next = time.monotonic() + 5 * _EVERY

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._line.say(f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

    def before(self, note: Callable[[str], None]) -> Callable[[str], None]:
        """The same, with the line out of its way."""

        def noted(sentence: str) -> None:
            self.clear()
            note(sentence)

        return noted

    def clear(self) -> None:
        self._line.clear()
