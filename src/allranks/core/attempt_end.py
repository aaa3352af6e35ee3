"""What ended an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.api.jobs import ErrorCollective
else:
    ErrorCollective = Any  # `unpack` takes it as it is


class Failure(NamedTuple):
    """The first cause: the earliest failure by time (``at``), on whichever node. ``cause``: a
    ``diagnosis.causes.Cause``, where it is more exact than the reason; else empty. ``collective``:
    in which the ranks hang, if that is known."""

    reason: Reason
    node: int | None = None
    rank: int | None = None
    code: int | None = None
    message: str = ""
    hint: str = ""
    at: float = 0.0
    passing: bool = False
    cause: str = ""
    collective: ErrorCollective | None = None
