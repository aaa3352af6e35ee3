"""What is done next for a deployment: what has happened, and which replicas start, drain and stop.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from allranks.core.endpoints.events import Event, Kind
from allranks.core.endpoints.fold import fold_all
from allranks.core.endpoints.patience import STEADY, after_failure, pause, starts_at_once
from allranks.core.endpoints.record import Deployment, Endpoint, Replica
from allranks.core.endpoints.states import ReplicaState
from allranks.core.endpoints.traffic import with_share

# Seconds for the requests of a draining replica.
DRAIN = 30.0
# Replicas of a deployment that start at one look: a mistyped number can be mended.
_MOST_STARTS = 10
# Characters of the reason that a replica's job or the router gives.
_LONGEST_REASON = 1000
# Seconds between two looks: while something changes, while a request may want the first replica,
# else.
QUICK, _ALERT, CALM = 0.05, 0.2, 1.0


class Decision(NamedTuple):
    """What has happened to a deployment; how many replicas start, and which ones are stopped;
    ``wait``: seconds until it is looked at again."""

    events: tuple[Event, ...] = ()
    start: int = 0
    stop: tuple[str, ...] = ()
    wait: float = CALM


class Steps(NamedTuple):
    """How many replicas start; which ones get no more requests, and which ones are stopped."""

    start: int = 0
    drain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def decide(
    endpoint: Endpoint, name: str, seen: Sequence[ReplicaState], load: int, now: float
) -> Decision:
    """The next steps of a deployment, whose load needs ``load`` replicas. ``seen``: each of its
    replicas. The router has the traffic of ``endpoint``."""
    row = endpoint.deployments[name]
    replicas = {item.job: item for item in row.replicas}
    seen = [item._replace(late=_is_late(row, replicas[item.job], item, now)) for item in seen]
    events = [Event(kind, now, name, data=data) for kind, data in _observed(row, seen, load, now)]
    after = fold_all(endpoint, events).deployments.get(name)
    if after is None:  # it was deleted, and its last replica has ended
        return Decision(tuple(events))
    instances = 0 if after.is_deleted else after.instances
    at_once = starts_at_once(after.failures, after.was_ready)
    steps = next_steps(seen, after.revision, instances, now, after.next_try, at_once)
    follow = (*_drained(after, steps.drain, instances), *_ready(endpoint, after, seen, now))
    events += [Event(kind, now, name, data=data) for kind, data in follow]
    wait = QUICK if steps.start else _next_look(fold_all(endpoint, events), name, seen, now)
    return Decision(tuple(events), min(steps.start, _MOST_STARTS), steps.stop, wait)


def _observed(
    row: Deployment, seen: Sequence[ReplicaState], load: int, now: float
) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """What is new of the load and of the replicas."""
    if not row.is_deleted and load != row.instances:
        yield Kind.SCALED, {"replicas": load, "before": row.instances}
    replicas = {item.job: item for item in row.replicas}
    for item in seen:
        replica = replicas[item.job]
        if item.ready and not replica.was_ready:
            seconds = now - replica.started_at
            yield Kind.READY, {"job": item.job, "revision": item.revision, "seconds": seconds}
        fails = (item.ended or item.late) and replica.drains_since is None
        if fails and not row.is_deleted:
            yield Kind.FAILED, _failed(row, replica, item, now)
        elif item.ended:
            yield Kind.ENDED, {"job": item.job}


def _failed(row: Deployment, replica: Replica, item: ReplicaState, now: float) -> dict[str, Any]:
    """A replica ended by itself, or never got ready, or does not answer."""
    failures, wait = after_failure(row.failures, replica.was_ready, now - replica.started_at)
    reason = f"{item.job} was not ready within {row.ready_within:g} s: {item.why}"
    if item.ended:
        reason = f"{item.job}: {item.why}"
    elif replica.was_ready:
        reason = f"{item.job} does not answer: {item.why}"
    return {"job": item.job, "ended": item.ended, **_patience(row, failures, wait, reason)}


def refused(row: Deployment, jobs: Sequence[str], reason: str, now: float) -> list[Event]:
    """The first of some replicas could not be submitted, and so the others are not."""
    failures = row.failures + 1
    data = _patience(row, failures, pause(failures), reason)
    first = Event(Kind.REFUSED, now, row.name, data={"job": jobs[0], "ended": True, **data})
    return [first, *(Event(Kind.ENDED, now, row.name, data={"job": job}) for job in jobs[1:])]


def starting(name: str, replica: Replica) -> Event:
    """A replica of a deployment is to start."""
    kept = ("job", "revision", "address", "model")
    data = {key: value for key, value in replica._asdict().items() if key in kept}
    return Event(Kind.STARTING, replica.started_at, name, data=data)


def _patience(row: Deployment, failures: int, wait: float, reason: str) -> dict[str, Any]:
    short = reason[:_LONGEST_REASON]
    return {"failures": failures, "wait": wait, "reason": short, "was_ready": row.was_ready}


def _drained(
    row: Deployment, jobs: Sequence[str], instances: int
) -> Iterator[tuple[Kind, dict[str, Any]]]:
    for item in row.replicas:
        if item.job in jobs and item.drains_since is None:
            why = f"{instances} are enough"
            if row.is_deleted:
                why = "its deployment is deleted"
            elif item.revision != row.revision:
                why = f"revision {row.revision} replaces it"
            yield Kind.DRAINING, {"job": item.job, "why": why}


def _ready(
    endpoint: Endpoint, row: Deployment, seen: Sequence[ReplicaState], now: float
) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """What follows once as many replicas are ready as there shall be. Traffic moves then; it has
    arrived at the next look, when the router knows it."""
    started = {item.job: item.started_at for item in row.replicas}
    ready = [
        now - started[item.job]
        for item in seen
        if item.ready and item.revision == row.revision and item.job in started
    ]
    if row.is_deleted or not ready or len(ready) < row.instances:
        return
    if row.reason is not None:
        yield Kind.RECOVERED, {}
    if row.failures and min(ready) >= STEADY:
        yield Kind.STEADY, {}
    if row.takes_traffic and row.instances:
        before = endpoint.traffic
        traffic = with_share(before, row.name, row.takes_traffic)
        if before.get(row.name) == traffic[row.name]:
            yield Kind.TRAFFIC_ARRIVED, {}
        else:
            yield Kind.TRAFFIC_MOVED, {"traffic": traffic}


def next_steps(
    replicas: Sequence[ReplicaState],
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


def _may_stop(replica: ReplicaState, now: float) -> bool:
    if replica.late or replica.drains_since is None or not replica.running:
        return True
    return now - replica.drains_since >= DRAIN


def _is_late(row: Deployment, replica: Replica, item: ReplicaState, now: float) -> bool:
    """Whether a replica may take no more time to become ready, or fails its probe. A new router
    knows none as ready, and one request that breaks its connection is no reason."""
    if item.ended or item.ready:
        return False
    if replica.was_ready:
        return item.failures >= row.parsed().liveness_probe.failure_threshold
    return item.running_since is not None and now - item.running_since > row.ready_within


def _next_look(endpoint: Endpoint, name: str, seen: Sequence[ReplicaState], now: float) -> float:
    """The seconds until a deployment is looked at again, if none of its replicas starts now."""
    row = endpoint.deployments.get(name)
    if row is None:
        return CALM
    ready = {item.job for item in seen if item.ready}
    instances = 0 if row.is_deleted else row.instances
    if starts_at_once(row.failures, row.was_ready) == 0:
        is_moving = any(item.drains_since is not None for item in row.replicas)
    else:
        settled = (
            len(row.replicas) == instances
            and not row.takes_traffic
            and all(item.drains_since is None and item.job in ready for item in row.replicas)
        )
        is_waiting = row.failures and now < row.next_try and not row.replicas
        is_moving = not settled and not is_waiting
    if is_moving:
        return QUICK
    return CALM if row.instances else _ALERT
