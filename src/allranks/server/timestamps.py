"""Times in the format of the API."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
