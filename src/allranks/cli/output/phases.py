"""Show a job's current phase at the bottom of a terminal, and how long phases took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from allranks.cli.output import show
from allranks.core.lifecycle.phases import PREPARATION, Phase

# Seconds after which a phase gets a line.
_LONG = 1.0

# The message for an ended phase; phases without one are reported otherwise.
_ENDED: Mapping[Phase, str] = {
    Phase.QUEUED: "queued",
    Phase.PROVISIONING: "nodes provisioned",
    Phase.PREPARING: "nodes prepared",
    Phase.CODE: "code ready",
    Phase.DATA: "data ready",
    Phase.STATE: "state ready",
    Phase.ENVIRONMENT: "environment ready",
    Phase.IMAGE: "image ready",
    Phase.STARTING: "ranks started",
}


class Phases:
    """The phases of one job, as reported by the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase: Phase | None = None
        self._began = 0.0

    def changed(self, record: Mapping[str, Any] | None) -> str:
        """Update the phase; returns a message about the previous phase if it ended."""
        phase = None if record is None else Phase(record["name"])
        if phase is self._phase:
            return ""
        began = self._clock()
        if record is not None and record["seconds"] is not None:
            # A phase that began before the previous one ended counts from that end.
            earlier = began - record["seconds"]
            began = earlier if self._phase is None or earlier >= self._began else began
        took, ended = began - self._began, _ENDED.get(self._phase or Phase.RUNNING, "")
        # A phase that ends with the job was not completed.
        finished = phase not in (None, Phase.FINALIZING)
        self._phase, self._began = phase, began
        return f"{ended} ({show.seconds(took)})" if ended and finished and took > _LONG else ""

    def text(self, job: Mapping[str, Any]) -> str:
        """The text of the bottom line."""
        took = show.seconds(int(self._clock() - self._began)).replace(".0 s", " s")
        part = ""
        if self._phase in PREPARATION and self._phase is not Phase.PREPARING:
            part = f", {self._phase}"
        if self._phase is Phase.STARTING:
            part = ", starting"
        reason = f": {job['status_reason']}" if job.get("status_reason") else ""
        return f"{job['name']} {job['status']}{part} ({took}){reason}"


@contextmanager
def every(seconds: float, lock: threading.Lock, draw: Callable[[], None]) -> Iterator[None]:
    """Call ``draw`` again and again, under the lock, while the caller waits."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            with lock:
                if not over.is_set():
                    draw()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
