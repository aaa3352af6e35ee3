"""One progress line: percent, amount, rate and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from allranks.cli.output import show
from allranks.core.transfer_progress import Meter, Progress, amounts, percent

# Seconds between updates, before the first one, and between lines in a pipe.
_EVERY, _FIRST, _IN_PIPES = 0.1, 0.5, 10.0


class ProgressLine:
    """Pass its ``report`` to the work. ``in_pipes``: also write a line now and then if stderr is
    not a terminal."""

    def __init__(self, quiet: bool, *, in_pipes: bool = False) -> None:
        self._line = show.StatusLine(quiet)
        self._in_pipes = in_pipes and not quiet and not sys.stderr.isatty()
        self._meter = Meter()
        now = time.monotonic()
        self._next = now + (_IN_PIPES if self._in_pipes else _FIRST)
        self._looked = 0.0

    def report(self, progress: Progress) -> None:
        if progress.total is None and not progress.done:
            self._line.say(progress.what)  # what follows may take long and reports nothing
            return
        now = time.monotonic()
        if now < self._looked + _EVERY:
            return
        self._looked = now
        rate = self._meter.rate(progress, now)
        if now < self._next:
            return
        text = amounts(progress, rate, show.seconds)
        if self._in_pipes:
            self._next = now + _IN_PIPES
            show.talk(text)
            return
        words = ", ".join(each for each in (percent(progress), text) if each)
        self._line.say(": ".join(each for each in (progress.what, words) if each))

    def before(self, note: Callable[[str], None]) -> Callable[[str], None]:
        """The same, after erasing the line."""

        def noted(sentence: str) -> None:
            self.clear()
            note(sentence)

        return noted

    def clear(self) -> None:
        self._line.clear()
