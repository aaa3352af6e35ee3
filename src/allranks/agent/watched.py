"""What is told of an attempt beside its events: the ranks' output, their metrics, what they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.agent.link import Feed, Link, Tail
from allranks.agent.monitor import Monitor
from allranks.plan.plan import Task

if TYPE_CHECKING:
    from allranks.agent.metrics import Metrics

# The files of an attempt's folder that points are shipped from, by what they are called to the
# server.
FEEDS = {"metrics": "metrics.jsonl", "resources": "resources.jsonl"}


class Watched:
    """One attempt's on one node; sent by ``link``."""

    def __init__(self, task: Task, attempt: int, folder: Path, link: Link) -> None:
        self._task, self._attempt, self._folder, self._link = task, attempt, folder, link
        self._monitor: Monitor | None = None
        self._metrics: Metrics | None = None

    def begin(self, logs: Mapping[int, Path], roots: Callable[[], Mapping[int, int]]) -> None:
        """The ranks run: they print to ``logs``, their first processes are ``roots``."""
        for rank, path in logs.items():
            self._link.follow(Tail(self._attempt, rank, path))
        for name, file in FEEDS.items():
            self._link.feed(Feed(self._attempt, name, self._folder / file))
        self._link.stacks = partial(_stacks, self._link.node, roots, {})
        into = self._folder / FEEDS["resources"]
        if self._task.hang_timeout is None:
            self._monitor = Monitor(roots, into)
        else:
            from allranks.agent.stillness import Stillness  # lazy: it is off unless asked for

            node = self._link.node
            eyes = Stillness(node, self._task.hang_timeout, logs, roots, self._tell)
            self._link.stacks = partial(_stacks, node, roots, eyes.busy)
            self._monitor = Monitor(roots, into, eyes.look)
        if self._task.metrics:
            from allranks.agent.metrics import Metrics  # lazy: many jobs ask for none

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


def _stacks(
    node: int, roots: Callable[[], Mapping[int, int]], busy: Mapping[int, float]
) -> list[dict[str, Any]]:
    from allranks.agent.stacks import take  # lazy: most jobs are never asked

    return take(node, roots(), busy)
