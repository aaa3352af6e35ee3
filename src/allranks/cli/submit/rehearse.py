"""`--rehearse` of `run` and `job create`: test that a job resumes after a rank is killed."""

from __future__ import annotations

import argparse
import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from allranks.cli.output import show
from allranks.core.insights.rehearsal import TOLERANCE
from allranks.errors import UsageError
from allranks.sdk.submit import rehearsal

if TYPE_CHECKING:
    from allranks.api.common import Document

# Signals within so many seconds count as one: `timeout`, and a terminal that closes, send two, and
# the second would interrupt the clean-up.
_SAME_INTERRUPT = 2.0


def rehearse(options: argparse.Namespace, spec: Document, base: Path, conflict: str = "") -> int:
    """Exit 0 when the job resumes, 1 when it does not or that is unknown.

    ``conflict``: an option of the command line that does not go with --rehearse.
    """
    _check_options(options, conflict)
    if (kind := spec.get("type") or "command") != "command":
        hint = "rehearse one of its jobs with a job file of type command"
        raise UsageError(f"a {kind} is not rehearsed as a whole", where="--rehearse", hint=hint)
    if options.dry_run:
        from allranks.cli.submit.dry_run import dry_run  # lazy: imports the server's models

        return dry_run(
            rehearsal.dry(spec), base, json=options.json, allow_large=options.allow_large_code
        )
    # These signals cancel both jobs. Under `nohup` SIGHUP stays ignored.
    interrupt = _Interrupt()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    say = (lambda sentence: None) if options.quiet else show.talk
    try:
        result = rehearsal.rehearse(
            spec, base, tolerance=tolerance, say=say, allow_large_code=options.allow_large_code
        )
    except KeyboardInterrupt:
        show.talk("\nrehearsal interrupted; its jobs are canceled")
        return 130
    if options.json:
        show.as_json(result.to_dict())
    else:
        show.line(result.sentence)
    if not options.quiet:
        for note in result.notes:
            show.talk(f"note: {note}")
        if not result.verified and not options.json:
            hints = filter(None, [result.hint, f"allranks job logs {result.killed}"])
            show.talk(f"\nhint: {'; '.join(hints)}")
    return 0 if result.verified else 1


class _Interrupt:
    """A signal handler that raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._ignore_until = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now > self._ignore_until:
            self._ignore_until = now + _SAME_INTERRUPT
            raise KeyboardInterrupt


def _check_options(options: argparse.Namespace, conflict: str) -> None:
    if not options.rehearse:
        hint = "add --rehearse, or leave it out"
        raise UsageError("--tolerance needs --rehearse", where="--tolerance", hint=hint)
    if options.in_place:
        hint = "leave it out: each of the two jobs starts with its own copy"
        raise UsageError("a rehearsal runs the job twice", where="--in-place", hint=hint)
    if getattr(options, "start_from", None):  # `job create` does not have it
        hint = "leave it out: both jobs start with empty outputs and an empty state"
        raise UsageError("a rehearsal starts from nothing", where="--from", hint=hint)
    if conflict:
        hint = f"leave {conflict} out; a shell's `&` or `nohup` runs it in the background"
        raise UsageError("a rehearsal cannot be detached", where=conflict, hint=hint)
