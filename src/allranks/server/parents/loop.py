"""The thread that advances live sweeps and pipelines: when a child ends, and on every tick."""

from __future__ import annotations

import logging
import queue
import threading
import time

from allranks.server.dependencies import Services
from allranks.server.parents.controller import Controller
from allranks.store.jobs.job_rows import COMMAND, JobRow

log = logging.getLogger("allranks.parents")

# Seconds that the server waits for the thread to end.
_STOP_TIMEOUT = 3.0


class Parents:
    """Advances the live jobs that have children, from ``start`` until ``stop``."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._woken: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._live: dict[str, Controller | None] = {}
        self._thread = threading.Thread(target=self._run, name="parents", daemon=True)

    def start(self) -> None:
        """Resume every live sweep and pipeline."""
        for row in self._services.records.live():
            if row.type != COMMAND:
                self._woken.put(row.name)
        self._services.loops.on_parent = self._woken.put
        self._thread.start()

    def stop(self) -> None:
        self._woken.put(None)
        self._thread.join(_STOP_TIMEOUT)

    def _run(self) -> None:
        while (names := self._wait()) is not None:
            for name in names or list(self._live):
                self._advance(name)

    def _wait(self) -> set[str] | None:
        """Names of jobs whose children changed; empty when the tick is due; None to end."""
        timeout = self._services.clocks.tick if self._live else None
        names: set[str] = set()
        try:
            name = self._woken.get(timeout=timeout)
            while name is not None:
                names.add(name)
                name = self._woken.get_nowait()
            return None
        except queue.Empty:
            return names

    def _advance(self, name: str) -> None:
        try:
            controller = self._live.setdefault(name, None)
            if controller is None:
                controller = self._controller(self._services.records.get(name))
                self._live[name] = controller
            if not controller.advance():
                del self._live[name]
        except Exception:
            # A full disk, a locked database: the record is unchanged, the next tick tries again.
            log.exception("%s: failed; retrying at the next tick", name)
            time.sleep(self._services.clocks.tick)

    def _controller(self, row: JobRow) -> Controller:
        if row.type == "sweep":
            from allranks.server.parents.sweep.controller import Sweep  # lazy: few jobs are sweeps

            return Sweep(row, self._services)
        from allranks.server.parents.pipeline.controller import Pipeline  # lazy: as above

        return Pipeline(row, self._services)
