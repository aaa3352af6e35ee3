"""Notice that the disk of the ranks' logs is full. Ranks write into their logs themselves, so what
does not fit is lost; only they could tell how much that is. And that they made holes in them, which
are left out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks import clock, disk_space, folder_trees
from allranks.events import LOST_OUTPUT


class LostOutput:
    """Of the ranks with logs in ``folder``. Call ``look`` about once a second. ``whole``: the logs
    by rank of which nothing is freed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.whole: Mapping[int, Path] = {}
        self._first: float | None = None
        self._last = 0.0

    def look(self) -> None:
        if disk_space.is_full(self._folder):
            self._last = clock.now()
            self._first = self._first or self._last

    def notes(self) -> Iterator[dict[str, Any]]:
        """For the record: whether the disk was full, and ranks' holes."""
        if self._first is not None:
            message = (
                f"output of ranks may be missing: the disk of their logs, {self._folder}, was full "
                f"between {_time(self._first)} and {_time(self._last)} UTC"
            )
            yield {"about": LOST_OUTPUT, "message": message}
        for rank, log in self.whole.items():
            with contextlib.suppress(OSError), folder_trees.open_file(log) as file:
                size = os.fstat(file.fileno()).st_size
                if size - disk_space.data_size(file.fileno()) >= disk_space.LARGE_HOLE:
                    message = f"the output of rank {rank} has holes, which are left out: the rank "
                    yield {"about": LOST_OUTPUT, "message": f"{message}made its log larger"}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
