"""What is told of an attempt beside its events: the ranks' output, their metrics, what they use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.agent.monitoring.monitor import Monitor
from allranks.agent.transport.link import Feed, Link, Tail
from allranks.plan.plan import Task

if TYPE_CHECKING:
    from allranks.agent.monitoring.memory_limit import MemoryLimit
    from allranks.agent.monitoring.metrics import Metrics

# The files of an attempt's folder that points are shipped from, by what they are called to the
# server.
FEEDS = {"metrics": "metrics.jsonl", "resources": "resources.jsonl"}


class AttemptReports:
    """One attempt's on one node; sent by ``link``."""

    def __init__(self, task: Task, attempt: int, folder: Path, link: Link) -> None:
        self._task, self._attempt, self._folder, self._link = task, attempt, folder, link
        self._monitor: Monitor | None = None
        self._metrics: Metrics | None = None

    def begin(
        self,
        logs: Mapping[int, Path],
        roots: Callable[[], Mapping[int, int]],
        limit: MemoryLimit | None = None,
    ) -> None:
        """The ranks run: they print to ``logs``, their first processes are ``roots``; ``limit`` is
        for the memory that they hold."""
        for rank, path in logs.items():
            self._link.follow(Tail(self._attempt, rank, path))
        for name, file in FEEDS.items():
            self._link.feed(Feed(self._attempt, name, self._folder / file))
        self._link.stacks = partial(_stacks, self._link.node, roots, {})
        into = self._folder / FEEDS["resources"]
        seen = roots if self._task.container is None else _Inside(self._link.node, roots)
        watch = partial(Monitor, seen, into)
        if limit is not None:
            watch = partial(watch, held=limit.look, most=limit.most)
        if self._task.hang_timeout is None:
            self._monitor = watch()
        else:
            # lazy: it is off unless asked for
            from allranks.agent.monitoring.idle_ranks import IdleRanks

            node = self._link.node
            eyes = IdleRanks(node, self._task.hang_timeout, logs, roots, self._tell)
            self._link.stacks = partial(_stacks, node, roots, eyes.busy)
            self._monitor = watch(also=eyes.look)
        if self._task.metrics:
            from allranks.agent.monitoring.metrics import Metrics  # lazy: many jobs ask for none

            self._metrics = Metrics(self._task, logs, self._folder / FEEDS["metrics"])

    def _tell(self, still: dict[str, Any]) -> None:
        self._link.still = still

    def over(self) -> None:
        """The ranks have ended."""
        self._link.stacks = list
        if self._monitor is not None:
            self._monitor.stop()

    def finish(self) -> list[dict[str, Any]]:
        """Have everything ready that is to be sent; facts for the record, each with a ``message``
        for a person."""
        return [] if self._metrics is None else self._metrics.finish()


class _Inside:
    """The first processes of ranks that run in a container, as this node numbers them: nobody's
    children here, so all processes are looked through now and then."""

    _AGAIN, _SOON = 10.0, 2.0

    def __init__(self, node: int, roots: Callable[[], Mapping[int, int]]) -> None:
        self._node, self._roots = node, roots
        self._found: Mapping[int, int] = {}
        self._at = -self._AGAIN

    def __call__(self) -> Mapping[int, int]:
        if known := self._roots():
            return known
        now = time.monotonic()
        if now - self._at > (self._AGAIN if self._found else self._SOON):
            from allranks.agent.monitoring.stacks import inside  # lazy: few jobs run in containers

            self._at, self._found = now, inside(self._node)[1]
        return self._found


def _stacks(
    node: int, roots: Callable[[], Mapping[int, int]], busy: Mapping[int, float]
) -> list[dict[str, Any]]:
    from allranks.agent.monitoring.stacks import take  # lazy: most jobs are never asked

    return take(node, roots(), busy)
