"""When a step that an engine could not perform is tried again, and what is logged of it."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from allranks.errors import AllranksError

log = logging.getLogger("allranks.loop")

# Seconds between two tries at most: a quota that is used up may stay so for days.
LONGEST = 30.0


class _Failed(NamedTuple):
    reason: str
    pause: float
    again: float


class Retries:
    """Failed steps, by the gang's key. The pauses between tries double, from ``first`` seconds.
    For one thread; in memory, because a new server tries at once."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._failed: dict[tuple[str, str], _Failed] = {}

    def due(self, key: str, step: str) -> bool:
        """Whether the step may be tried now."""
        failed = self._failed.get((key, step))
        return failed is None or time.monotonic() >= failed.again

    def failed(self, key: str, step: str, error: Exception) -> None:
        """Note that the step failed, and log it unless it failed for the same reason before."""
        last = self._failed.get((key, step))
        reason = str(error)
        if not isinstance(error, AllranksError):
            log.error("%s: %s failed, retrying soon", key, step, exc_info=error)
        elif last is None or last.reason != reason:
            log.warning("%s: %s failed, retrying until it succeeds: %s", key, step, reason)
        pause = self._first if last is None else min(LONGEST, 2 * last.pause)
        self._failed[key, step] = _Failed(reason, pause, time.monotonic() + pause)

    def postpone(self, key: str, step: str) -> None:
        """Note that the step is tried again soon, without a failure."""
        self._failed[key, step] = _Failed("", self._first, time.monotonic() + self._first)

    def forget(self, key: str) -> None:
        self._failed = {entry: value for entry, value in self._failed.items() if entry[0] != key}
