"""What ended an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.statuses import Reason


class Failure(NamedTuple):
    """The first cause: the earliest failure by time (``at``), on whichever node. ``cause``: a
    ``diagnosis.causes.Cause``, where it is more exact than the reason; else empty."""

    reason: Reason
    node: int | None = None
    rank: int | None = None
    code: int | None = None
    message: str = ""
    hint: str = ""
    at: float = 0.0
    passing: bool = False
    cause: str = ""

    @staticmethod
    def load(data: Mapping[str, Any]) -> Failure:
        """The failure that ``pack`` made into JSON."""
        return Failure(**{**data, "reason": Reason(data["reason"])})
