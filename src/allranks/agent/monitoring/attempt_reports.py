"""Report an attempt's logs, metrics, resource usage, stacks and idle ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.agent.monitoring import process_usage
from allranks.agent.monitoring.logged_lines import LoggedLines
from allranks.agent.monitoring.lost_output import LostOutput
from allranks.agent.monitoring.mlflow_files import MlflowFiles
from allranks.agent.monitoring.monitor import Monitor, Sample
from allranks.agent.monitoring.other_jobs import Met, StoreWatch
from allranks.agent.processes.hold import FOLDER
from allranks.agent.processes.rank_processes import Members
from allranks.agent.trackers.follower import TrackerFiles
from allranks.agent.transport.link import Link
from allranks.agent.transport.tails import Feed, Tail
from allranks.core.distributions.rank_variables import LOGGED
from allranks.core.distributions.topology import world
from allranks.core.plan import Task

if TYPE_CHECKING:
    from allranks.agent.monitoring.idle_ranks import IdleRanks
    from allranks.agent.monitoring.memory_limit import MemoryLimit
    from allranks.agent.monitoring.metrics import Metrics
    from allranks.agent.monitoring.pace import Pace
    from allranks.api.agents import ProfileOrder, RankProfile

# The files of an attempt's folder that contain points, by the server's name for them.
FEEDS = {
    "metrics": "metrics.jsonl",
    "resources": "resources.jsonl",
    "logged": LOGGED,
    "trackers": "trackers.jsonl",
}


class AttemptReports:
    """The reports of one attempt on one node, sent by ``link``. ``work`` is the working folder;
    ``places`` are other folders in which ranks write and no links, ``period`` the seconds between
    reports on who waits for whom."""

    def __init__(
        self,
        task: Task,
        attempt: int,
        folder: Path,
        work: Path,
        link: Link,
        places: Sequence[Path] = (),
        period: float = 20.0,
    ) -> None:
        self._task, self._attempt, self._link = task, attempt, link
        self._folder, self._work = folder, Path(os.path.realpath(work))
        self._monitor: Monitor | None = None
        self._metrics: Metrics | None = None
        self._mlflow: MlflowFiles | None = None
        self._idle: IdleRanks | None = None
        self._sample: Sample = {}
        self._period = period
        self._logged = LoggedLines(folder / LOGGED)
        self._lost_output = LostOutput(folder)
        into = folder / FEEDS["trackers"]
        self._trackers = TrackerFiles(task, link.node, (self._work, *places), into)

    def begin(
        self,
        logs: Mapping[int, Path],
        roots: Callable[[], Mapping[int, int]],
        limit: MemoryLimit | None = None,
        met: Met | None = None,
    ) -> None:
        """Begin when the ranks run. ``logs`` are their logs, ``roots`` returns the first process of
        each, ``limit`` enforces their memory limit, ``met``: a rank meets another job."""
        self._lost_output.whole = {} if self._task.log_limit is not None else logs
        for rank, path in logs.items():
            bounded = self._task.log_limit is not None
            self._link.follow(Tail(self._attempt, rank, path, bounded=bounded))
        for name, file in FEEDS.items():
            batched = name == "resources"
            self._link.feed(Feed(self._attempt, name, self._folder / file, batched=batched))
        self._link.stacks = partial(_stacks, self._link.node, roots, {})
        self._link.profile = partial(_profile, self._link.node, roots)
        self._mlflow = self._mlflow_files()
        if self._task.hang_timeout is not None:
            # lazy: off by default
            from allranks.agent.monitoring.idle_ranks import IdleRanks

            node = self._link.node
            self._idle = IdleRanks(node, self._task.hang_timeout, logs, roots, self._report_idle)
            self._link.stacks = partial(_stacks, node, roots, self._idle.busy)
        into = self._folder / FEEDS["resources"]
        visible = roots if self._task.container is None else _Inside(self._link.node, roots)
        monitor = partial(Monitor, visible, into, self._lasts, self._sampled)
        stores = None if met is None else StoreWatch(met)

        self._trackers.look_at(visible)
        pace = self._pace()

        def held(members: Members, ranks: Mapping[int, process_usage.Rank], size: int) -> None:
            self._trackers.see(members)
            if pace is not None:
                pace.look(members, ranks, self._sample)
            if limit is not None:
                limit.look(members, ranks, size)
            if stores is not None:
                stores.look(members)

        if self._task.metrics:
            from allranks.agent.monitoring.metrics import Metrics  # lazy: many jobs have none

            self._metrics = Metrics(self._task, logs, self._folder / FEEDS["metrics"])
        self._monitor = monitor(held=held, most=None if limit is None else limit.most)

    def _pace(self) -> Pace | None:
        """Who waits for whom, if ranks may."""
        if world(self._task) < 2 or not self._task.flight_recorder:
            return None
        from allranks.agent.monitoring.pace import Pace  # lazy: many jobs have one rank

        return Pace(self._link, world(self._task), self._period)

    def _mlflow_files(self) -> MlflowFiles | None:
        """Those of the working folder. Nodes that share it leave them to the first one."""
        if self._task.in_place and self._link.node:
            return None
        return MlflowFiles(self._work, self._folder / FEEDS["logged"])

    def _lasts(self) -> None:
        self._trackers.start()
        if self._metrics is not None:
            self._metrics.begin()

    def _sampled(self, sample: Sample) -> None:
        self._sample = sample
        self._logged.look()
        self._lost_output.look()
        if self._mlflow is not None:
            self._mlflow.look()
        if self._idle is not None:
            self._idle.look(sample)

    def _report_idle(self, still: dict[str, Any]) -> None:
        self._link.still = still

    def keep_stacks(self) -> None:
        """From now on show the stacks of this moment: stopped processes cannot."""
        from allranks.agent.monitoring.stacks import held  # lazy: few attempts are held

        taken = held(self._link.stacks(), self._folder / FOLDER)
        self._link.stacks = lambda: taken

    def over(self) -> None:
        """End when the ranks have ended."""
        self._link.stacks = list
        self._link.profile = lambda order: []
        if self._monitor is not None:
            self._monitor.stop()
        if self._mlflow is not None:
            self._mlflow.look(at_once=True)
        self._trackers.finish()

    def finish(self) -> list[dict[str, Any]]:
        """Read the rest of the metrics. Return notes for the record."""
        self._logged.look(last=True)
        notes = [] if self._metrics is None else self._metrics.finish()
        notes += [*self._logged.notes(), *self._trackers.notes()]
        notes += [] if self._mlflow is None else self._mlflow.notes()
        of_metrics = [{"about": "metrics", **note} for note in notes]
        return [*of_metrics, *self._lost_output.notes()]


class _Inside:
    """The first processes of ranks in a container, with their ids on the node. They are not our
    children, so all processes are searched at intervals: seconds after a match, and without."""

    _AGAIN, _SOON = 10.0, 2.0

    def __init__(self, node: int, roots: Callable[[], Mapping[int, int]]) -> None:
        self._node, self._roots = node, roots
        self._pids: Mapping[int, int] = {}
        self._at = -self._AGAIN

    def __call__(self) -> Mapping[int, int]:
        if roots := self._roots():
            return roots
        now = time.monotonic()
        if now - self._at > (self._AGAIN if self._pids else self._SOON):
            from allranks.agent.monitoring.stacks import inside  # lazy: few jobs run in containers

            self._at, self._pids = now, inside(self._node)[1]
        return self._pids


def _stacks(
    node: int, roots: Callable[[], Mapping[int, int]], busy: Mapping[int, float]
) -> list[dict[str, Any]]:
    from allranks.agent.monitoring.stacks import take  # lazy: rarely requested

    return take(node, roots(), busy)


def _profile(
    node: int, roots: Callable[[], Mapping[int, int]], order: ProfileOrder
) -> list[RankProfile]:
    from allranks.agent.monitoring.profiles import take  # lazy: rarely requested

    return take(node, roots(), order)
