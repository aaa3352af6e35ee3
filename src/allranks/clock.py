"""The time of events: seconds since the epoch, by a clock that is never set.

The machine's own clock says where it begins; from then on it goes as the time since the machine
was started does, its sleep included. Nobody's hour is over because a clock was put forward.
"""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_began = time.time() - time.clock_gettime(_CLOCK)


def now() -> float:
    return _began + time.clock_gettime(_CLOCK)


def begin_anew() -> None:
    """Believe the machine's clock once more: for when nothing is being waited for."""
    global _began
    _began = time.time() - time.clock_gettime(_CLOCK)
