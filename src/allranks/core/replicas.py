"""Which replicas of a deployment start, drain and stop. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Seconds: before the second try, at most between two, and for the requests of a draining replica.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
DRAIN = 30.0
# Seconds that a replica answers before it counts as one that works.
STEADY = 60.0
# Tries that end before any replica was ready, after which a deployment counts as failed.
HOPELESS = 3
# The states of deployments, the worst first.
_SEVERITY = ("Failed", "UpdateFailed", "Degraded", "Creating", "Updating", "Ready")
# Tries in a row after which a revision that never was ready is given up: within half an hour.
_MOST_TRIES = 12


class Replica(NamedTuple):
    """What is known of a replica. Times in seconds since the epoch. ``late``: it may take no more
    time to become ready, or fails its probe. ``drains_since`` is None while it gets requests;
    ``running``: requests that it has."""

    job: str
    revision: int
    ready: bool = False
    ended: bool = False
    late: bool = False
    drains_since: float | None = None
    running: int = 0


class Steps(NamedTuple):
    """How many replicas start; which ones get no more requests, and which ones are stopped."""

    start: int = 0
    drain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def decide(
    replicas: Sequence[Replica],
    revision: int,
    instances: int,
    now: float,
    next_try: float,
    at_once: int | None = None,
) -> Steps:
    """The next steps towards ``instances`` replicas of a revision, of which ``at_once`` may be on
    their way.

    Replicas of older revisions serve until as many new ones are ready, and all of them until the
    first one is, so an update that fails takes nothing away.
    """
    alive = [replica for replica in replicas if not replica.ended]
    serving = [replica for replica in alive if replica.drains_since is None and not replica.late]
    new = [replica for replica in serving if replica.revision == revision]
    old = [replica for replica in serving if replica.revision != revision]
    missing = instances - len(new) if now >= next_try else 0
    if at_once is not None:
        missing = min(missing, at_once - sum(not replica.ready for replica in new))
    # Ready ones stay: the others go first.
    new.sort(key=lambda replica: not replica.ready)
    old.sort(key=lambda replica: not replica.ready)
    new_ready = sum(replica.ready for replica in new)
    needed = max(0, instances - new_ready)
    if instances and not new_ready:
        needed = max(needed, sum(replica.ready for replica in old))
    drain = [*new[instances:], *old[needed:]]
    leaving = [replica for replica in alive if replica.drains_since is not None or replica.late]
    stop = [replica for replica in leaving if _may_stop(replica, now)]
    return Steps(
        max(0, missing),
        tuple(replica.job for replica in drain),
        tuple(replica.job for replica in stop),
    )


def _may_stop(replica: Replica, now: float) -> bool:
    if replica.late or replica.drains_since is None or not replica.running:
        return True
    return now - replica.drains_since >= DRAIN


def starts_at_once(failures: int, was_ready: bool) -> int | None:
    """How many replicas may be on their way: all (None), one after a failure, or several where one
    ``was_ready``, and none once a revision of which none was is given up."""
    if failures == 0 or (was_ready and failures < HOPELESS):
        return None
    return 1 if was_ready or failures < _MOST_TRIES else 0


def tries(failures: int, was_ready: bool, seconds: float) -> str:
    """What became of the last tries, and when the next one is; empty without failures."""
    if failures == 0:
        return ""
    text = "the last try failed" if failures == 1 else f"{failures} tries in a row failed"
    if starts_at_once(failures, was_ready) == 0:
        return f"{text}: it is given up until it is updated"
    return f"{text}; the next one is " + (f"in {seconds:.0f} s" if seconds > 0 else "on its way")


def with_share(traffic: Mapping[str, int], name: str, percent: int) -> dict[str, int]:
    """The traffic when a deployment gets ``percent`` of it: the others divide the rest as before.
    Without others it gets all."""
    others = {other: share for other, share in traffic.items() if share and other != name}
    total, rest = sum(others.values()), 100 - percent
    if not total:
        return {name: 100}
    shares = {other: rest * share // total for other, share in others.items()}
    lost = rest - sum(shares.values())  # by rounding down
    for other in sorted(shares, key=lambda key: -(rest * others[key] % total))[:lost]:
        shares[other] += 1
    return {name: percent, **{other: share for other, share in shares.items() if share}}


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


def state(replicas: Sequence[Replica], revision: int, instances: int, failures: int) -> str:
    """A `DeploymentState`."""
    ready = [replica for replica in replicas if replica.ready and replica.drains_since is None]
    new = sum(replica.revision == revision for replica in ready)
    if new >= instances and len(ready) == new:  # none of before is asked any more
        return "Ready"
    if failures >= HOPELESS and new == 0:
        return "UpdateFailed" if ready else "Failed"
    # Those of before still answer, or more of the new ones are on their way.
    if failures < HOPELESS and (len(ready) > new or (new and not failures)):
        return "Updating"
    return "Degraded" if new else "Creating"


def endpoint_state(states: Mapping[str, str], traffic: Mapping[str, int]) -> str:
    """The worst `DeploymentState` of the deployments that get requests; of all, while none does;
    `Empty` without deployments."""
    serving = [state for name, state in states.items() if traffic.get(name)]
    return min(serving or states.values(), key=_SEVERITY.index, default="Empty")
