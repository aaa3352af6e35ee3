"""Notice that the disk of the ranks' logs is full. Ranks write into their logs themselves, so what
does not fit is lost; only they could tell how much that is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks import clock, disk_space
from allranks.events import LOST_OUTPUT


class LostOutput:
    """Of the ranks with logs in ``folder``. Call ``look`` about once a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._first: float | None = None
        self._last = 0.0

    def look(self) -> None:
        if disk_space.is_full(self._folder):
            self._last = clock.now()
            self._first = self._first or self._last

    def notes(self) -> Iterator[dict[str, Any]]:
        """One for the record, if the disk was full."""
        if self._first is not None:
            message = (
                f"output of ranks may be missing: the disk of their logs, {self._folder}, was full "
                f"between {_time(self._first)} and {_time(self._last)} UTC"
            )
            yield {"about": LOST_OUTPUT, "message": message}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
