"""Where the time of a job went: every second of it is one of eight things, and goodput their share.

Goodput is the part of the time a job had its nodes in which it computed what was not lost again.
What a failed attempt computed is lost from the last step on that a later attempt did not do anew;
where ranks tell no steps, nobody can say how much that was, and it is called computing, with a
note. Times are those of the events, each on the clock of who says it: one that lies before what
came earlier counts as at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from allranks.events import Event, Kind
from allranks.statuses import GangState, Purpose, Reason


class Activity(StrEnum):
    """What a job does with a second."""

    QUEUEING = "queueing"
    PREPARING = "preparing"
    COMPUTING = "computing"
    LOST = "lost"
    HANG = "hang"
    HOLDING = "holding"
    RESTARTING = "restarting"
    FINALIZING = "finalizing"


class Span(NamedTuple):
    """A stretch of one activity, seconds since the epoch; ``attempt`` counts from 1."""

    activity: Activity
    begin: float
    end: float
    attempt: int

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Trail(NamedTuple):
    """The steps that a rank told of in an attempt, as one metric counts them, and when."""

    attempt: int
    name: str
    rank: int | None
    steps: tuple[tuple[int, float], ...]


class Goodput(NamedTuple):
    """The whole time of a job, without gaps. ``failures`` are those that took work with them or
    ended it; ``unknown``: how much was lost is not in the record of each; ``stepless``: it did not
    complete, and nothing in its record shows that it ever took a step."""

    spans: tuple[Span, ...] = ()
    failures: int = 0
    unknown: bool = False
    stepless: bool = False

    def seconds(self, *activities: Activity) -> float:
        """The time spent with these; with none of them given, with all."""
        counted = activities or tuple(Activity)
        return math.fsum(span.seconds for span in self.spans if span.activity in counted)

    @property
    def share(self) -> float | None:
        """From 0 to 1; None for a job that never had its nodes, and for a stepless one: its ranks
        may have imported, or waited, all the time."""
        if self.stepless:
            return None
        had = self.seconds() - self.seconds(Activity.QUEUEING)
        return self.seconds(Activity.COMPUTING) / had if had > 0 else None


def goodput(events: Sequence[Event], now: float, trails: Sequence[Trail] = ()) -> Goodput:
    """Of a job's events in the order of the record, up to ``now`` while it has not ended; what was
    done anew follows from the ``trails`` of all its attempts."""
    if not events:
        return Goodput()
    events = [*_of_attempts(events)]
    failed = _failed_at(events)
    marks = _marks(events, failed)
    ended = next((event.at for event in events if event.kind is Kind.FINISHED), now)
    spans = _spans(marks, max(ended, marks[-1].at))
    went = {span.attempt for span in spans if span.activity is Activity.COMPUTING}
    redone = {attempt: _redone_from(attempt, trails) for attempt in failed.keys() & went}
    unknown = any(at is None and attempt != max(went) for attempt, at in redone.items())
    parted = (part for span in spans for part in _parted(span, redone.get(span.attempt)))
    return Goodput(tuple(parted), len(redone), unknown)


class _Mark(NamedTuple):
    """From then on the job does this."""

    at: float
    activity: Activity
    attempt: int


# What does not end an attempt by a failure.
_NO_FAILURE = (Reason.DONE, Reason.CANCELED)
# Before the ranks start; the engine may take a gang back then.
_WAITING = (Activity.QUEUEING, Activity.PREPARING, Activity.RESTARTING)


def _of_attempts(events: Sequence[Event]) -> Iterator[Event]:
    """Without the ends of gangs that were submitted again and made no attempt."""
    ends = (Kind.CLOSING, Kind.RELAUNCHED)
    resubmitted = False
    for event in events:
        if event.kind is Kind.CLOSING:
            resubmitted = event.data.get("purpose") == Purpose.RESUBMIT
        if not (resubmitted and event.kind in ends):
            yield event


def _failed_at(events: Iterable[Event]) -> dict[int, float]:
    """When each attempt that failed did so: the earliest word of it."""
    failed_at: dict[int, float] = {}
    for event in events:
        at = _fails(event)
        if at is not None:
            failed_at[event.attempt] = min(at, failed_at.get(event.attempt, math.inf))
    return failed_at


def _fails(event: Event) -> float | None:
    data = event.data
    if event.kind in (Kind.HELD, Kind.ENDED) and data.get("reason") not in (
        *_NO_FAILURE,
        Reason.PEER_FAILED,
    ):
        return float(data.get("failed_at") or event.at)
    if event.kind is Kind.LOST:
        return float(data.get("heard") or event.at)
    if event.kind is Kind.CLOSING and data.get("reason") not in _NO_FAILURE:
        return float(data["hung"]["at"] if data.get("hung") else event.at)
    return None


def _marks(events: Sequence[Event], failed: Mapping[int, float]) -> list[_Mark]:
    """What the events say began when; never back in time."""
    marks = [_Mark(events[0].at, Activity.QUEUEING, 1)]
    for event in events:
        last = marks[-1]
        activity = _begins(event, last.activity)
        if activity is None:
            continue
        next_one = event.kind in (Kind.RELAUNCHED, Kind.REGROUPED)
        fails = event.kind is Kind.HELD
        fails |= event.kind is Kind.CLOSING and last.activity is not Activity.HOLDING
        at = failed.get(event.attempt, event.at) if fails else event.at
        if event.data.get("hung"):
            # From the last progress of a rank to the decision that the job hangs.
            marks.append(_Mark(max(at, last.at), Activity.HANG, event.attempt))
            at = event.at
        marks.append(_Mark(max(at, marks[-1].at), activity, event.attempt + next_one))
    return marks


def _begins(event: Event, now: Activity) -> Activity | None:
    """What the job does from that event on, if that changes."""
    if event.kind is Kind.GO:
        return Activity.COMPUTING
    if event.kind is Kind.HELD:
        return Activity.HOLDING if now is Activity.COMPUTING else None
    if event.kind is Kind.CLOSING:
        over = event.data.get("purpose") == Purpose.FINISH
        return Activity.FINALIZING if over else Activity.RESTARTING
    if event.kind in (Kind.RELAUNCHED, Kind.REGROUPED):
        return Activity.RESTARTING
    if now not in _WAITING:
        return None
    if event.kind is Kind.SUBMITTED or _reports_state(event, GangState.QUEUED):
        return Activity.QUEUEING
    if event.kind is Kind.HELLO or _reports_state(event, GangState.UP):
        return Activity.RESTARTING if event.attempt > 1 else Activity.PREPARING
    return None


def _reports_state(event: Event, state: GangState) -> bool:
    return event.kind is Kind.SEEN and event.data.get("state") == state


def _spans(marks: Sequence[_Mark], end: float) -> list[Span]:
    """From mark to mark, those of the same activity and attempt as one."""
    spans: list[Span] = []
    for mark, until in zip(marks, [*(following.at for following in marks[1:]), end], strict=True):
        last = spans[-1] if spans else None
        if last and (last.activity, last.attempt) == (mark.activity, mark.attempt):
            spans[-1] = last._replace(end=until)
        elif until > mark.at:
            spans.append(Span(mark.activity, mark.at, until, mark.attempt))
    return spans


def _redone_from(attempt: int, trails: Sequence[Trail]) -> float | None:
    """From when on its work was done anew by a later attempt: infinity where none was, None where
    that is not known."""
    times = []
    mine = {(trail.name, trail.rank): trail for trail in trails if trail.attempt == attempt}
    for later in sorted({trail.attempt for trail in trails if trail.attempt > attempt}):
        theirs = {(e.name, e.rank): e for e in trails if e.attempt == later}
        shared = [key for key in mine if key in theirs and _counts(mine[key], theirs[key])]
        if shared:
            # What is told most often says it best.
            best = max(shared, key=lambda key: (len(mine[key].steps), str(key)))
            times.append(_kept_until(mine[best], theirs[best].steps[0][0]))
    return min(times, default=None)


def _counts(*trails: Trail) -> bool:
    """Whether steps only go up: within an epoch they begin anew with each."""
    return all(
        trail.steps and all(a[0] <= b[0] for a, b in pairwise(trail.steps)) for trail in trails
    )


def _kept_until(trail: Trail, resumed: int) -> float:
    kept = [at for step, at in trail.steps if step < resumed]
    if len(kept) == len(trail.steps):
        return math.inf
    return kept[-1] if kept else -math.inf


def _parted(span: Span, redone: float | None) -> Iterator[Span]:
    """The span, what of its computing was done anew as lost."""
    if span.activity is not Activity.COMPUTING or redone is None or redone >= span.end:
        yield span
        return
    at = max(span.begin, redone)
    if at > span.begin:
        yield span._replace(end=at)
    yield span._replace(activity=Activity.LOST, begin=at)
