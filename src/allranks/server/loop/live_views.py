"""Whose resource use somebody looks at: agents of such jobs send it at once, others in batches."""

from __future__ import annotations

import threading
import time
from itertools import takewhile

# Seconds for which a look counts. Longer than agents' batches and their requests for orders are
# apart: a page that is open asks again when a batch has come.
LOOK = 30.0


class LiveViews:
    """In memory: who looks on after a restart asks again. Thread-safe."""

    def __init__(self) -> None:
        # By job, those that expire first in front.
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def look(self, job: str) -> None:
        """Record that somebody looks at the job."""
        now = time.monotonic()
        with self._lock:
            self._until.pop(job, None)
            self._until[job] = now + LOOK
            for each in [*takewhile(lambda one: self._until[one] <= now, self._until)]:
                del self._until[each]

    def are_open(self, job: str) -> bool:
        """Whether somebody looks at the job."""
        return self._until.get(job, 0.0) > time.monotonic()
