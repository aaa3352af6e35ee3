"""One loop for each cluster that has jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from allranks.errors import AllranksError
from allranks.server.assets.node_files import files_of
from allranks.server.clusters.clusters import Cluster
from allranks.server.ending.endings import Endings
from allranks.server.loop.loop_services import LoopServices
from allranks.server.loop.reconcile import Loop
from allranks.server.loop.subscriptions import Change
from allranks.store.jobs.job_rows import COMMAND

log = logging.getLogger("allranks.loop")

# Seconds the server waits for its loops to end.
_STOP_TIMEOUT = 3.0


class Loops:
    """One loop for each cluster that has jobs, started with its first job. Thread-safe."""

    def __init__(self, services: LoopServices) -> None:
        self._services = services
        self._records, self._clusters = services.records, services.clusters
        self._endings = Endings(
            services.home, services.records, services.data, services.working_folders
        )
        self._loops: dict[Cluster, Loop] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Resume every live job, and clean up gangs of this machine that no live job owns."""
        self._endings.start()
        live = self._records.live()
        kept = {name for row in live for name in (row.key, files_of(row.name))}
        # Listed before any loop can start a new gang.
        names = (folder.name for folder in self._services.home.nodes.iterdir())
        leftovers = [name for name in names if name not in kept]
        for cluster in self._clusters.on_this_machine():
            self._loop_for(cluster, leftovers)
        for row in live:
            if row.type != COMMAND:
                continue
            try:
                self._loop_for(self._clusters.cluster(row.plan))
            except (AllranksError, KeyError):
                log.exception("%s: its cluster cannot be loaded", row.name)

    def stop(self) -> None:
        with self._lock:
            loops = list(self._loops.values())
        for worker in (*loops, self._endings):
            worker.end()
        # A loop that waits for a cluster is abandoned: its step is repeated after the next start.
        until = time.monotonic() + _STOP_TIMEOUT
        for worker in (*loops, self._endings):
            worker.join(until - time.monotonic())

    def wake(self, name: str) -> None:
        """Advance the job now, and wake everyone who waits for news of it."""
        row = self._records.latest(name) or self._records.get(name)
        if row.type == COMMAND:
            self._loop_for(self._clusters.cluster(row.plan)).wake(name)
        else:
            self._services.subscriptions.publish(Change.PARENT, name)
        self._services.wakeups.notify(name)

    def _loop_for(self, cluster: Cluster, leftovers: Sequence[str] = ()) -> Loop:
        with self._lock:
            if cluster not in self._loops:
                self._loops[cluster] = Loop(cluster, self._services, self._endings, leftovers)
                self._loops[cluster].start()
            return self._loops[cluster]
