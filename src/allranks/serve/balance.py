"""Which deployment and which replica gets a request."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from allranks.serve.table import Backend, Route
from allranks.serve.upstream import Pool

# Requests that may wait for a turn at a deployment; answers whose times are kept.
_MOST_WAITING, _TIMES = 1000, 1000
# Seconds of which the latencies are told.
_WINDOW = 60.0
# Seconds between two looks for requests that are late.
_LATE = 0.02


class Weights:
    """Divides requests exactly: of each hundred, a deployment gets its percents, evenly spread."""

    def __init__(self, percents: Mapping[str, int]) -> None:
        self.percents = {name: percent for name, percent in percents.items() if percent > 0}
        self._credit = dict.fromkeys(self.percents, 0)

    def next(self) -> str | None:
        """The deployment of the next request; None if none gets any."""
        if len(self.percents) < 2:
            return next(iter(self.percents), None)
        for name, percent in self.percents.items():
            self._credit[name] += percent
        chosen = max(self._credit, key=lambda name: self._credit[name])
        self._credit[chosen] -= sum(self.percents.values())
        return chosen


class Worker:
    """A replica as the router sees it: ``running`` turns are taken, and ``streams`` answers still
    on their way without one. ``reason``: why it is not ready."""

    def __init__(self, backend: Backend, sockets: Path) -> None:
        self.backend = backend
        self.pool = Pool(backend.address, sockets)
        self.running = self.streams = 0
        self.ready = False
        self.reason: str | None = "it has not answered yet"
        self.failures, self.failed_at = 0, -math.inf


class Turn:
    """A turn at a replica. ``let_go`` frees it before the request has ended: the answer is read, or
    its caller is slow. Until ``end`` the replica does not stop for an update."""

    def __init__(self, deployment: Deployment, worker: Worker) -> None:
        self._deployment, self.worker = deployment, worker
        self._holds = True

    def let_go(self) -> None:
        if self._holds:
            self._holds = False
            self.worker.streams += 1
            self._deployment.give(self.worker)

    def end(self) -> None:
        self.let_go()
        self.worker.streams -= 1


class NoTurn(Exception):
    """No replica is free within the time that a request may wait."""


class NoReplica(Exception):
    """No replica is ready."""


class Deployment:
    """The replicas of a deployment, and the requests that wait for one."""

    def __init__(self, endpoint: str, route: Route, sockets: Path) -> None:
        self.endpoint = endpoint
        self.route = route
        self._sockets = sockets
        self.workers: dict[str, Worker] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.requests = self.errors = self.refused = 0
        # When requests ended, and the seconds that they took.
        self._times: deque[tuple[float, float]] = deque(maxlen=_TIMES)
        self._limits: dict[asyncio.Timeout, float] = {}
        self._looks = False
        # The requests that are here, the sum of the times at which they came, and the seconds that
        # all others were here.
        self._here, self._since, self._spent = 0, 0.0, 0.0
        self.change(route)

    def come(self) -> float:
        """A request comes; returns when."""
        now = time.monotonic()
        self.requests += 1
        self._here += 1
        self._since += now
        return now

    def leave(self, came: float) -> None:
        now = time.monotonic()
        spent = now - came
        self._times.append((now, spent))
        self._here -= 1
        self._since = self._since - came if self._here else 0.0
        self._spent += spent

    def times(self) -> list[float]:
        """The seconds that the requests of the last minute took, from the least."""
        begin = time.monotonic() - _WINDOW
        return sorted(spent for ended, spent in self._times if ended > begin)

    @property
    def busy(self) -> float:
        """The seconds of all requests: what it grows by in a second is their mean number."""
        return self._spent + self._here * time.monotonic() - self._since

    def start(self, limit: asyncio.Timeout) -> None:
        """Let it expire once the request is late, unless `end` comes first. One timer looks at all
        requests: one for each would cost as much as parsing it."""
        self._limits[limit] = time.monotonic() + self.route.timeout
        if not self._looks:
            self._look()

    def end(self, limit: asyncio.Timeout) -> None:
        self._limits.pop(limit, None)

    def _look(self) -> None:
        now = time.monotonic()
        for limit in [limit for limit, late_at in self._limits.items() if late_at <= now]:
            del self._limits[limit]
            limit.reschedule(0)
        self._looks = bool(self._limits)
        if self._looks:
            asyncio.get_running_loop().call_later(_LATE, self._look)

    def change(self, route: Route) -> None:
        self.route = route
        before, self.workers = self.workers, {}
        for backend in route.backends:
            worker = before.pop(backend.job, None) or Worker(backend, self._sockets)
            worker.backend = backend
            self.workers[backend.job] = worker
        for gone in before.values():
            gone.ready = False
            gone.pool.close()
        self.wake()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return sum(worker.running for worker in self.workers.values())

    def _serving(self) -> list[Worker]:
        return [
            worker for worker in self.workers.values() if worker.ready and not worker.backend.drains
        ]

    def _free(self) -> Worker | None:
        """The least loaded replica with a turn left."""
        several = [worker for worker in self._serving() if worker.running < self.route.concurrency]
        return min(several, key=lambda worker: worker.running, default=None)

    async def take(self) -> Worker:
        """A turn at a replica: see ``give``. Raises NoTurn and NoReplica."""
        if not self._waiting and (worker := self._free()) is not None:
            worker.running += 1
            return worker
        if len(self._waiting) >= _MOST_WAITING:
            raise NoTurn
        patience = self.route.queue_wait
        if not self._serving():
            if not self.route.cold:
                raise NoReplica
            patience = max(patience, self.route.cold)
        until = time.monotonic() + patience
        while True:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await asyncio.wait_for(turn, max(0.0, until - time.monotonic()))
            except TimeoutError:
                raise (NoTurn if self._serving() else NoReplica) from None
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)
            if (worker := self._free()) is not None:
                worker.running += 1
                return worker

    def give(self, worker: Worker) -> None:
        worker.running -= 1
        self.wake()

    def wake(self) -> None:
        """Let as many requests go on as there are turns."""
        if not self._waiting:
            return
        turns = sum(max(0, self.route.concurrency - worker.running) for worker in self._serving())
        while turns > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                turns -= 1
