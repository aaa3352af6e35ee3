"""How far long work is, on one line of a terminal: percent, amount, speed, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from allranks.cli.output import show
from allranks.plan.progress import Meter, Progress, amounts, percent

# Seconds between two states of the line, before the first one, and between two lines in a pipe.
_EVERY, _FIRST, _IN_PIPES = 0.1, 0.5, 10.0


class ProgressLine:
    """Give its ``report`` to what reports. ``in_pipes``: write a line now and then on a stderr that
    is no terminal as well."""

    def __init__(self, quiet: bool, *, in_pipes: bool = False) -> None:
        self._line = show.StatusLine(quiet)
        self._in_pipes = in_pipes and not quiet and not sys.stderr.isatty()
        self._meter = Meter()
        now = time.monotonic()
        self._next = now + (_IN_PIPES if self._in_pipes else _FIRST)
        self._looked = 0.0

    def report(self, progress: Progress) -> None:
        if progress.total is None and not progress.done:
            self._line.say(progress.what)  # what follows may take long, and says no more
            return
        now = time.monotonic()
        if now < self._looked + _EVERY:
            return
        self._looked = now
        rate = self._meter.rate(progress, now)
        if now < self._next:
            return
        told = amounts(progress, rate, show.seconds)
        if self._in_pipes:
            self._next = now + _IN_PIPES
            show.talk(told)
            return
        words = ", ".join(each for each in (percent(progress), told) if each)
        self._line.say(": ".join(each for each in (progress.what, words) if each))

    def before(self, note: Callable[[str], None]) -> Callable[[str], None]:
        """The same, with the line out of its way."""

        def noted(sentence: str) -> None:
            self.clear()
            note(sentence)

        return noted

    def clear(self) -> None:
        self._line.clear()
