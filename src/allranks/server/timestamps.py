"""Times in the format of the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def iso_time(seconds: float) -> str: ...
@overload
def iso_time(seconds: float | None) -> str | None: ...
def iso_time(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
