"""Times as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def when(seconds: float | None) -> str | None:
    """ISO 8601 in UTC, of seconds since the epoch."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
