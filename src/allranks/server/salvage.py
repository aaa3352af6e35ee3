"""What a dead agent left on this disk goes into the record: its outbox, its ranks' output, and the
points it had found."""

from __future__ import annotations

import logging
from pathlib import Path

from allranks.agent import outbox
from allranks.agent.watched import FEEDS
from allranks.plan.distributions import log_name, ranks_of, world
from allranks.settings import Home
from allranks.store.logs import Logs
from allranks.store.points import Points, Source
from allranks.store.records import JobRow, Records

log = logging.getLogger("allranks.salvage")


def salvage(home: Home, records: Records, points: Points, row: JobRow, node: int) -> None:
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
        records.hear(row.name, said)


def _take_points(path: Path, points: Points, source: Source) -> None:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    size = points.take(source, 0, b"")
    with file:
        file.seek(size)
        while lines := b"".join(file.readlines(1 << 20)):
            size = points.take(source, size, lines)


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
