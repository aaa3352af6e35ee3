"""What a dead agent left on this disk goes into the record: its outbox, its ranks' output, and the
points it had found."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from allranks.agent.monitoring.attempt_reports import FEEDS
from allranks.agent.transport import outbox
from allranks.engines.base import GangStatus
from allranks.plan.distributions.topology import log_name, ranks_of, world
from allranks.plan.lifecycle.decide import Job, Node
from allranks.settings import Home
from allranks.statuses import GangState, NodeState
from allranks.store.files.logs import Logs
from allranks.store.job_rows import JobRow
from allranks.store.metric_points import Points, Source
from allranks.store.records import Records

log = logging.getLogger("allranks.salvage")


def collect(home: Home, records: Records, points: Points, row: JobRow, node: int) -> None:
    """Take in what ``node`` said and its ranks wrote and the record has not got. Twice is once."""
    folder = home.nodes / f"{row.name}.{row.record.launch}" / str(node)
    logs = Logs(home.jobs / row.name)
    for attempt in range(1, row.record.attempt + 1):
        for rank in ranks_of(row.plan.task, node):
            name = log_name(rank.rank, world(row.plan.task))
            _take_in(folder / f"attempt-{attempt}" / f"rank-{rank.rank}.log", logs, attempt, name)
        for name, file in FEEDS.items():
            source = Source(row.id, attempt, node, name)
            try:
                _take_points(folder / f"attempt-{attempt}" / file, points, source)
            except Exception:
                # No job waits for its end because of points. Where it is the disk or the database
                # that fails, what follows does, too, and all of it is tried again.
                log.exception("%s: not all %s of node %s were kept", row.name, name, node)
    said = outbox.read(folder)
    if said:
        records.append(row.name, said)


def _take_points(path: Path, points: Points, source: Source) -> None:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    size = points.add_from_agent(source, 0, b"")
    with file:
        file.seek(size)
        while lines := b"".join(file.readlines(1 << 20)):
            size = points.add_from_agent(source, size, lines)


def _take_in(source: Path, logs: Logs, attempt: int, name: str) -> None:
    try:
        file = source.open("rb")
    except FileNotFoundError:
        return
    size = logs.append(attempt, name, 0, b"")
    with file:
        file.seek(size)
        while piece := file.read(1 << 20):
            size = logs.append(attempt, name, size, piece)


def dead(job: Job, seen: GangStatus) -> Iterable[int]:
    """The nodes whose agents an engine's word makes dead. A gang that is in a queue again has none
    any more; those that have not come up yet may still, from there."""
    nodes = range(len(job.nodes))
    if seen.state is GangState.UP:
        found: Iterable[int] = seen.lost
    elif seen.state is GangState.GONE:
        found = nodes
    elif job.gang is GangState.UP and seen.state is not GangState.UNKNOWN:
        found = [n for n in nodes if job.nodes[n].state is not NodeState.ABSENT]
    else:
        found = ()
    return [node for node in found if _is_alive(job.nodes[node])]


def _is_alive(node: Node) -> bool:
    return not node.left and node.state is not NodeState.LOST
