"""Advances live sweeps and pipelines: when a child ends, and on every tick."""

from __future__ import annotations

import logging

from allranks.server.dependencies import Services
from allranks.server.loop.subscriptions import Change
from allranks.server.parents.controller import Controller
from allranks.server.worker import Worker
from allranks.store.jobs.job_rows import COMMAND, JobRow

log = logging.getLogger("allranks.parents")


class Parents(Worker):
    """Advances the live jobs that have children."""

    def __init__(self, services: Services) -> None:
        super().__init__("parents", first=None, retry=services.clocks.tick)
        self._services = services
        self._live: dict[str, Controller | None] = {}
        services.subscriptions.subscribe(Change.PARENT, self.wake)

    def start(self) -> None:
        """Resume every live sweep and pipeline."""
        for row in self._services.records.live():
            if row.type != COMMAND:
                self.wake(row.name)
        super().start()

    def look(self, names: set[str]) -> float | None:
        for name in names or [*self._live]:
            self._advance(name)
        return self._services.clocks.tick if self._live else None

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
            self.ending.wait(self._services.clocks.tick)

    def _controller(self, row: JobRow) -> Controller:
        if row.type == "sweep":
            from allranks.server.parents.sweep.controller import Sweep  # lazy: few jobs are sweeps

            return Sweep(row, self._services)
        from allranks.server.parents.pipeline.controller import Pipeline  # lazy: as above

        return Pipeline(row, self._services)
