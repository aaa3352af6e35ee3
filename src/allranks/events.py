"""What can happen to a job. Events are append-only; the job record is a fold over them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """All kinds of events. The server records the first block, agents send the second."""

    CREATED = "created"
    SUBMITTED = "submitted"
    REFUSED = "refused"
    SEEN = "seen"
    GO = "go"
    CLOSING = "closing"
    STOPPING = "stopping"
    REGROUPED = "regrouped"
    RELAUNCHED = "relaunched"
    FINISHED = "finished"
    CANCEL_ASKED = "cancel_asked"
    LOST = "lost"
    PREEMPT_ASKED = "preempt_asked"
    KILL_ASKED = "kill_asked"
    RELEASED = "released"
    ENTERED = "entered"
    NOTICE = "notice"
    RESUMED = "resumed"

    HELLO = "hello"
    READY = "ready"
    STARTED = "started"
    RANK_ENDED = "rank_ended"
    TAKEN = "taken"
    WORKED = "worked"
    HELD = "held"
    ENDED = "ended"
    DRAINED = "drained"
    BYE = "bye"
    NOTE = "note"


# What a NOTE is about whose message names processes that could not be ended.
LEFTOVERS = "leftovers"
# …of a note on a service of the job; its data are `service`, `state` and `message`.
SERVICE = "service"
# …of a note of the server on a rank that holds the others, or does so no longer.
SLOW_RANK = "slow_rank"
# …of a note that output of ranks may be missing.
LOST_OUTPUT = "lost_output"

FROM_AGENTS = frozenset(
    {
        Kind.HELLO,
        Kind.READY,
        Kind.STARTED,
        Kind.RANK_ENDED,
        Kind.TAKEN,
        Kind.WORKED,
        Kind.HELD,
        Kind.ENDED,
        Kind.DRAINED,
        Kind.BYE,
        Kind.NOTE,
    }
)


class Event(NamedTuple):
    """One event. ``at`` is seconds since the epoch on the sender's clock. ``seq`` numbers the
    events of an agent from 1; it is 0 for the server's events."""

    kind: Kind
    at: float
    launch: int = 1
    attempt: int = 1
    node: int | None = None
    rank: int | None = None
    seq: int = 0
    data: Mapping[str, Any] = {}
