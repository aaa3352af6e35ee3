"""When a gang that gets only a part of its nodes releases them, and when it tries again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from allranks.engines.kubernetes.manifest import HOLD
from allranks.engines.kubernetes.views import JobView, PodView

# The scheduler's longest pause between two tries of a pod: until then an old refusal may stand
# beside a node that has become free.
_BACKOFF = 12.0
# Seconds of the first pause, and the longest one, which is also this many times the hold limit.
_FIRST, _LONGEST, _TIMES = 5.0, 60.0, 4.0


class Step(StrEnum):
    """RELEASE suspends the Job, RESUME starts it again."""

    STAY = "stay"
    RELEASE = "release"
    RESUME = "resume"


class Hold(NamedTuple):
    """A gang's tries to get all its nodes. ``since``: when it began to hold a part of them.
    ``again``: when it tries again. ``releases``: how often it released a part. ``words``: why it
    did so last, in the cluster's words. ``never``: no later try can succeed. ``waited``: the
    scheduler had refused its pods before the first of them got a node."""

    since: float | None = None
    again: float | None = None
    releases: int = 0
    words: str = ""
    never: bool = False
    waited: bool = False


class Refusal(NamedTuple):
    """A quota's words about a Job whose pods it keeps out. ``never``: even with nothing else in
    the namespace the gang would exceed it."""

    words: str
    never: bool = False


def decide(
    hold: Hold,
    job: JobView,
    pods: Sequence[PodView],
    now: float,
    limit: float | None = None,
    refusal: Refusal | None = None,
) -> tuple[Hold, Step]:
    """What to do with the gang now, and its state afterwards. ``limit``: the seconds that it may
    hold a part of its nodes; None: until the cluster refuses one. ``refusal``: of a quota."""
    if job.queue or job.end or job.deleted:
        return Hold(), Step.STAY
    if job.suspended:
        if hold.again is None:
            hold = hold._replace(since=None, again=now + pause(job.key, hold.releases, limit))
        released = all(pod.silent for pod in pods)
        due = released and not hold.never and hold.again is not None and now >= hold.again
        return hold, Step.RESUME if due else Step.STAY
    if hold.again is not None and now < hold.again:
        return hold, Step.STAY  # it was suspended a moment ago, and the watch has not shown it yet
    hold = hold._replace(again=None)
    living = [pod for pod in pods if not pod.over and not pod.deleted]
    if refusal is not None and refusal.never:
        return _released(hold._replace(never=True), job, now, limit, refusal.words)
    if not _holds_a_part(job, pods, living, refusal):
        whole = sum(bool(pod.host) for pod in living) >= job.nodes
        waited = any(pod.refused for pod in living)
        return (Hold() if whole else hold._replace(since=None, waited=waited)), Step.STAY
    since = now if hold.since is None else hold.since
    hold = hold._replace(since=since)
    words = refusal.words if refusal else next((p.unscheduled for p in living if p.unscheduled), "")
    refused = refusal is not None or any(pod.refused for pod in living)
    if limit is not None:
        patience = limit
    elif refused:
        patience = _BACKOFF if hold.waited and refusal is None else 0.0
    else:
        patience = HOLD  # the cluster says nothing of the missing ones
    if now - since < patience:
        return hold, Step.STAY
    return _released(hold, job, now, limit, words)


def pause(key: str, releases: int, limit: float | None = None) -> float:
    """Seconds until a gang tries again that has released nodes that many times: at first 5 to 10,
    then twice as long each time, up to two minutes, or eight hold limits. They differ by gang and
    try, so of gangs that block each other one gets through."""
    longest = max(_LONGEST, _TIMES * (limit or 0.0))
    shortest = min(longest, _FIRST * 2.0 ** min(max(releases - 1, 0), 20))
    digest = hashlib.sha256(f"{key} {releases}".encode()).digest()
    return shortest * (1 + int.from_bytes(digest[:4]) / 2**32)


def _released(
    hold: Hold, job: JobView, now: float, limit: float | None, words: str
) -> tuple[Hold, Step]:
    releases = hold.releases + 1
    again = now + pause(job.key, releases, limit)
    hold = Hold(again=again, releases=releases, words=words, never=hold.never)
    return hold, Step.RELEASE


def _holds_a_part(
    job: JobView, pods: Sequence[PodView], living: Sequence[PodView], refusal: Refusal | None
) -> bool:
    """Whether some pods of a gang have nodes, or a quota, while others have none, and no agent has
    started."""
    if any(pod.over for pod in pods):
        return False
    placed = sum(bool(pod.host) for pod in living)
    if refusal is not None:
        return 0 < len(living) < job.nodes
    return 0 < placed < job.nodes
