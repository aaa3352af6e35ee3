"""How many gangs of this server a cluster takes into a queue, learnt from what it refuses. Pure.

One decision for all gangs of a queue: as many as were taken are kept there, and one at a time is
tried beyond, less and less often while it is refused.
"""

from __future__ import annotations

from typing import NamedTuple

# Seconds until one more is tried than the cluster took: at first, and at most.
FIRST, LONGEST = 1.0, 60.0


class SubmitLimit(NamedTuple):
    """``most`` gangs fit; None while none was refused. From ``probe_at`` on, one more is tried;
    ``pause`` is the time before it. ``grows``: by how many the limit grows if that one fits."""

    most: int | None = None
    probe_at: float = 0.0
    pause: float = FIRST
    grows: int = 1


def may_submit(limit: SubmitLimit, queued: int, now: float) -> bool:
    """Whether to submit another gang where ``queued`` are in the queue."""
    return limit.most is None or queued < limit.most or now >= limit.probe_at


def after_accepted(limit: SubmitLimit, queued: int, now: float) -> SubmitLimit:
    """The limit once a gang was taken beside ``queued`` others."""
    if limit.most is None or queued < limit.most:
        return limit
    return SubmitLimit(queued + limit.grows, now + FIRST, FIRST, 2 * limit.grows)


def after_refused(limit: SubmitLimit, queued: int, now: float) -> SubmitLimit:
    """The limit once a gang was refused because of the ``queued`` others, and those of others."""
    is_probe = limit.most is not None and queued >= limit.most and limit.grows == 1
    pause = min(LONGEST, 2 * limit.pause) if is_probe else FIRST
    return SubmitLimit(queued, now + pause, pause)
