"""Slow ranks of torch are recorded as ranks of the job, whose number differs under a launcher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from allranks import clock
from allranks.core.lifecycle.decide import Node
from allranks.core.plan import Gang, Place, Plan, Rules, Task
from allranks.server.loop.slow_ranks import SlowRanks
from allranks.statuses import JobStatus, NodeState
from allranks.store.database import open_database
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.agents import PaceReport, RankPace

PERIOD, STEP, PER_NODE = 20.0, 0.2, 2


@pytest.fixture
def row(tmp_path: Path) -> JobRow:
    """Two nodes of one rank each, in which a launcher starts two ranks of torch each."""
    engine = open_database(tmp_path / "db")
    task = Task("j", "ex", "true", 2)
    made = Records(engine).create({}, Plan(Gang("j.1", 2, ("a",)), task, Rules(2), "fake"))
    engine.dispose()
    nodes = tuple(Node(NodeState.RUNNING, 1, place=Place(f"127.0.0.{n}", "here")) for n in (2, 3))
    record = made.record._replace(status=JobStatus.RUNNING, launch=1, attempt=1, nodes=nodes)
    return made._replace(record=record)


def report(node: int, late: int, at: float) -> PaceReport:
    """Of the ranks of torch on that node; ``late`` comes half a step after the others."""
    first = int((at - PERIOD) / STEP)
    ranks: dict[str, RankPace] = {}
    for rank in range(node * PER_NODE, (node + 1) * PER_NODE):
        lateness = STEP / 2 if rank == late else 0.0
        calls = [(0, n, n * STEP + lateness) for n in range(first, first + int(PERIOD / STEP))]
        ranks[str(rank)] = {"job_rank": node, "calls": calls}
    return {
        "at": at,
        "now": clock.now(),
        "period": PERIOD,
        "groups": [("0", [*range(2 * PER_NODE)])],
        "ranks": ranks,
        "strain": {},
        "host": {},
    }


def test_a_slow_rank_is_named_by_the_jobs_rank_that_it_is_in(row: JobRow) -> None:
    watched = SlowRanks(PERIOD)
    events = []
    for turn in range(2, 9):
        for node in (0, 1):
            events += watched.record(row, node, report(node, late=3, at=turn * PERIOD))
    (event,) = events
    assert (event.node, event.rank) == (1, 1)
    assert "torch's rank 3, in rank 1 on node 1 holds the others" in event.data["message"]
    assert event.data["hint"].endswith("--ranks 1")
    assert watched.waiting("j")[0] > 0.3
