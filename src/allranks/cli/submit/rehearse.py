"""`--rehearse` of `run` and `job create`: does the job go on after a rank was killed?"""

from __future__ import annotations

import argparse
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from allranks.cli.output import show
from allranks.errors import UsageError
from allranks.plan.insights.rehearsal import TOLERANCE
from allranks.sdk.submit import rehearsal

# Seconds in which several signals are one.
_AT_ONCE = 2.0


def rehearse(
    options: argparse.Namespace, spec: dict[str, Any], base: Path, follow: str = ""
) -> int:
    """Exit 0 when it does, 1 when it does not or nobody can tell. ``follow``: an option that asks
    not to be waited for."""
    _hold_to_it(options, follow)
    if options.dry_run:
        from allranks.cli.submit.dry_run import dry_run  # lazy: compiling imports the models

        return dry_run(
            rehearsal.dry(spec), base, json=options.json, allow_large=options.allow_large_code
        )
    # What ends this command ends both jobs; `nohup` has it outlast its terminal.
    interrupt = _Interrupt()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    say = (lambda sentence: None) if options.quiet else show.talk
    try:
        found = rehearsal.rehearse(
            spec, base, tolerance=tolerance, say=say, allow_large_code=options.allow_large_code
        )
    except KeyboardInterrupt:
        show.talk("\nthe rehearsal is broken off; its jobs are canceled")
        return 130
    if options.json:
        show.as_json(found.to_dict())
    else:
        show.line(found.sentence)
    if not options.quiet:
        _more(found, options.json)
    return 0 if found.verified else 1


class _Interrupt:
    """Ends what is done, once: `timeout`, and a terminal that closes, send two signals at once,
    and the second would break off the tidying up."""

    def __init__(self) -> None:
        self._until = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now > self._until:
            self._until = now + _AT_ONCE
            raise KeyboardInterrupt


def _more(found: rehearsal.Rehearsal, json: bool) -> None:
    for note in found.notes:
        show.talk(f"note: {note}")
    hint = "; ".join(filter(None, [found.hint, f"allranks job logs {found.killed}"]))
    if not found.verified and not json:
        show.talk(f"\nhint: {hint}")


def _hold_to_it(options: argparse.Namespace, follow: str) -> None:
    if not options.rehearse:
        hint = "add --rehearse, or leave it out"
        raise UsageError("a tolerance is of a rehearsal", where="--tolerance", hint=hint)
    if options.in_place:
        hint = "leave it out: each of the two jobs begins with a copy of its own"
        raise UsageError("a rehearsal runs the job twice", where="--in-place", hint=hint)
    if getattr(options, "start_from", None):  # which `job create` does not have
        hint = "leave it out: both jobs begin with empty outputs and an empty state"
        raise UsageError("a rehearsal starts from nothing", where="--from", hint=hint)
    if follow:
        hint = f"leave {follow} out; a shell's `&` or `nohup` keeps it in the background"
        raise UsageError("a rehearsal is followed to its end", where=follow, hint=hint)
