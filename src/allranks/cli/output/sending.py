"""Send code and data: a progress line, and questions before much is sent."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.errors import AllranksError, CodeTooLarge, DataTooLarge

T = TypeVar("T")


@contextmanager
def sending(
    options: argparse.Namespace,
) -> Iterator[tuple[ProgressLine, Callable[[str], None]]]:
    """A progress line, and a function that prints notes above it. SIGTERM acts as Ctrl-C."""
    line = ProgressLine(options.quiet)

    def note(text: str) -> None:
        if not options.quiet:
            show.talk(f"note: {text}")

    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield line, line.before(note)
    finally:
        signal.signal(signal.SIGTERM, before)
        line.clear()


def confirm_large_code(options: argparse.Namespace, prepare: Callable[[bool], T]) -> T:
    """Call ``prepare`` with whether large code is allowed. On a terminal, asks the user when it is
    not. Raises CodeTooLarge."""
    return _confirmed(options, options.allow_large_code, prepare, CodeTooLarge)


def confirm_large_data(options: argparse.Namespace, send: Callable[[bool], T]) -> T:
    """The same for an upload of much data. Raises DataTooLarge."""
    return _confirmed(options, options.allow_large_data, send, DataTooLarge)


def _confirmed(
    options: argparse.Namespace,
    allow: bool,
    act: Callable[[bool], T],
    too_large: type[AllranksError],
) -> T:
    try:
        return act(allow)
    except too_large as error:
        if options.json or options.quiet or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        show.talk(str(error))
        print("send it anyway? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise
        return act(True)
