"""The time of events: seconds since the epoch, unaffected by clock changes.

It starts at the machine's clock and advances with the time since boot, including sleep. Setting the
machine's clock does not trigger time limits.
"""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime() -> float:
    """Seconds since the machine's start, including sleep: unlike ``now``, never set anew."""
    return time.clock_gettime(_CLOCK)


_began = time.time() - uptime()


def now() -> float:
    return _began + uptime()


def begin_anew() -> None:
    """Take the machine's clock again. For moments when no job is waiting for a time."""
    global _began
    _began = time.time() - uptime()
