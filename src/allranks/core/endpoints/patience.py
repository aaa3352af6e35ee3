"""How long and how often a deployment is tried. Pure."""

from __future__ import annotations

# Seconds: before the second try, and at most between two.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
# Seconds that a replica answers before it counts as one that works.
STEADY = 60.0
# Tries that end before any replica was ready, after which a deployment counts as failed.
HOPELESS = 3
# Tries in a row after which a revision that never was ready is given up: within half an hour.
MOST_TRIES = 12


def starts_at_once(failures: int, was_ready: bool) -> int | None:
    """How many replicas may be on their way: all (None), one after a failure, or several where one
    ``was_ready``, and none once a revision of which none was is given up."""
    if failures == 0 or (was_ready and failures < HOPELESS):
        return None
    return 1 if was_ready or failures < MOST_TRIES else 0


def tries(failures: int, was_ready: bool, seconds: float) -> str:
    """What became of the last tries, and when the next one is; empty without failures."""
    if failures == 0:
        return ""
    text = "the last try failed" if failures == 1 else f"{failures} tries in a row failed"
    if starts_at_once(failures, was_ready) == 0:
        return f"{text}: it is given up until it is updated"
    return f"{text}; the next one is " + (f"in {seconds:.0f} s" if seconds > 0 else "on its way")


def pause(failures: int) -> float:
    """Seconds before the next try after so many failures in a row."""
    if failures == 0:
        return 0.0
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (failures - 1))


def after_failure(failures: int, was_ready: bool, lived: float) -> tuple[int, float]:
    """How many tries in a row have failed after one more, and the seconds before the next one. A
    replica that answered for a while is replaced at once."""
    if was_ready and lived >= STEADY:
        return 1, 0.0
    return failures + 1, pause(failures + 1)
