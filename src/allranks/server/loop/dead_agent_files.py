"""Collect what a dead agent left on this disk into the record: its outbox, the logs of its ranks
and its metric points."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from allranks.agent.transport import outbox
from allranks.agent.transport.tails import Feed, Tail
from allranks.core.distributions.topology import log_name, ranks_of, world
from allranks.core.lifecycle.decide import Job, Node
from allranks.engines.base import GangStatus
from allranks.settings import Home
from allranks.statuses import GangState, NodeState
from allranks.store.files.logs import Logs
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Points, Source

log = logging.getLogger("allranks.salvage")


def collect(home: Home, records: Records, points: Points, row: JobRow, node: int) -> None:
    """Add the events, logs and points of ``node`` that the record lacks. Idempotent."""
    from allranks.agent.monitoring.attempt_reports import FEEDS  # lazy: few agents die

    folder = home.nodes / f"{row.name}.{row.record.launch}" / str(node)
    logs = Logs(home.jobs / row.name)
    for attempt in range(1, row.record.attempt + 1):
        for rank in ranks_of(row.plan.task, node):
            name = log_name(rank.rank, world(row.plan.task))
            log_file = folder / f"attempt-{attempt}" / f"rank-{rank.rank}.log"
            _collect_log(log_file, logs, attempt, rank.rank, name)
        for name, file in FEEDS.items():
            source = Source(row.id, attempt, node, name)
            try:
                _collect_points(folder / f"attempt-{attempt}" / file, points, source)
            except Exception:
                # Points must not delay the end of a job. If the disk or the database fails, the
                # steps below fail as well, and everything is retried.
                log.exception("%s: not all %s of node %s were saved", row.name, name, node)
    events = outbox.read(folder)
    if events:
        records.append(row.name, events)


def _collect_points(path: Path, points: Points, source: Source) -> None:
    """As its agent would have sent them: nothing of a file that is not there, or not its own."""
    feed = Feed(source.attempt, source.name, path)
    feed.sent = points.add_from_agent(source, 0, b"")
    while lines := feed.rest():
        feed.sent = points.add_from_agent(source, feed.sent, lines)


def _collect_log(source: Path, logs: Logs, attempt: int, rank: int, name: str) -> None:
    tail = Tail(attempt, rank, source)
    tail.sent = logs.append(attempt, rank, name, 0, b"")
    while piece := tail.rest():
        tail.sent = logs.append(attempt, rank, name, tail.sent, piece, tail.age() / 1000)


def dead(job: Job, status: GangStatus) -> Iterable[int]:
    """The nodes whose agents are dead according to the engine's status. A gang that is queued again
    has lost its running agents; agents that had not started yet may still start."""
    nodes = range(len(job.nodes))
    if status.state is GangState.UP:
        lost: Iterable[int] = status.lost
    elif status.state is GangState.GONE:
        lost = nodes
    elif job.gang is GangState.UP and status.state is not GangState.UNKNOWN:
        lost = [n for n in nodes if job.nodes[n].state is not NodeState.ABSENT]
    else:
        lost = ()
    return [node for node in lost if _is_alive(job.nodes[node])]


def _is_alive(node: Node) -> bool:
    return not node.left and node.state is not NodeState.LOST
