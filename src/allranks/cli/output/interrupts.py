"""Ctrl-C while the server is asked to take a job: nobody knew then whether the job runs."""

from __future__ import annotations

import argparse
import signal
from types import FrameType, TracebackType
from typing import Any

from allranks.cli.output import show
from allranks.errors import MissingCode


class Interrupts:
    """As a context around the request, it keeps a first Ctrl-C; a second one acts at once. Where
    Ctrl-C is ignored, as in the background of a script, it stays so."""

    def __init__(self, name: str) -> None:
        self._name, self._kept = name, False
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before != signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._keep)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """A job that was taken is named first, and then ``act`` called."""
        if isinstance(error, MissingCode):
            self.act()  # nothing was taken, and the code need not be sent
        elif error is not None:
            signal.signal(signal.SIGINT, self._before)

    def act(self) -> None:
        """Handle Ctrl-C as before from here on. Raises KeyboardInterrupt if one was kept."""
        signal.signal(signal.SIGINT, self._before)
        if self._kept:
            self._kept = False
            raise KeyboardInterrupt

    def _keep(self, number: int, frame: FrameType | None) -> None:
        if self._kept:
            raise KeyboardInterrupt
        self._kept = True
        show.talk(f"\ninterrupting {self._name} once it is submitted; Ctrl-C again to stop waiting")


def act_on_interrupt(options: argparse.Namespace) -> None:
    """Let Ctrl-C act again, after ``submit``. Raises KeyboardInterrupt if one was kept."""
    if interrupts := getattr(options, "interrupts", None):
        interrupts.act()
