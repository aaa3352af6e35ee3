"""Which part of the preparation an agent is at. The server hears of one that takes a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from allranks import clock
from allranks.plan.lifecycle.phases import Phase

P = ParamSpec("P")
T = TypeVar("T")

# Seconds after which a part is worth an event.
_LONG = 1.0


class Preparation:
    """Runs its parts one after the other; ``note`` records a fact, from any thread."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._phase, self._since, self._said = Phase.PREPARING, clock.now(), False
        # Held while something is said, so that nothing is said of a part that has ended.
        self._lock = threading.Lock()

    def __call__(
        self, phase: Phase, prepare: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run one part. The server hears of it after a second, or with what it is ``doing``."""
        self._phase, self._since, self._said = phase, clock.now(), False
        late = threading.Timer(_LONG, self._say_late, [self._since])
        late.daemon = True
        late.start()
        try:
            return prepare(*args, **named)
        finally:
            late.cancel()
            with self._lock:
                self._phase, self._since = Phase.PREPARING, clock.now()

    def doing(self, what: str) -> None:
        """Tell what takes so long."""
        with self._lock:
            self._said = True
            self._note(doing=what, phase=self._phase, since=self._since)

    def _say_late(self, since: float) -> None:
        with self._lock:
            if since == self._since and not self._said:
                self._note(phase=self._phase, since=self._since)
