"""The phases of an agent's preparation; those that take a while are reported to the server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from allranks import clock
from allranks.core.lifecycle.phases import Phase

P = ParamSpec("P")
T = TypeVar("T")

# Seconds after which a phase is reported.
_LONG = 1.0


class Preparation:
    """Runs phases one after the other. ``note`` records an event, from any thread. Another thread
    calls ``look`` regularly."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._phase, self._since, self._reported = Phase.PREPARING, clock.now(), True
        # Prevents reports on a phase that has ended.
        self._lock = threading.Lock()

    def __call__(
        self, phase: Phase, prepare: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run one phase. It is reported after a second, or by ``doing``."""
        with self._lock:
            self._phase, self._since, self._reported = phase, clock.now(), False
        try:
            return prepare(*args, **named)
        finally:
            with self._lock:
                self._phase, self._since, self._reported = Phase.PREPARING, clock.now(), True

    def doing(self, activity: str) -> None:
        """Report what the current phase is doing."""
        with self._lock:
            self._reported = True
            self._note(doing=activity, phase=self._phase, since=self._since)

    def look(self) -> None:
        """Report the current phase if it takes long."""
        with self._lock:
            if not self._reported and clock.now() - self._since > _LONG:
                self._reported = True
                self._note(phase=self._phase, since=self._since)
