"""The engine whose nodes are those of sessions: what agents say of guests, and the end of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.engines.base import Handle
from allranks.events import Kind
from allranks.server.loop.wakeups import Wakeups
from allranks.server.sessions.engine import SessionEngine
from allranks.statuses import GangState, JobStatus, Reason
from allranks.store.database import opened_database
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

GUEST = Handle("guest.1")


class Bed:
    """A session and another job, as the record has them, and the engine."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.engine = SessionEngine(records, Wakeups(), lambda row: {})
        self.session = self.make("dev-s", {"session": {}})

    def make(self, name: str, spec: dict[str, Any]) -> JobRow:
        plan = Plan(Gang(f"{name}.1", 1, ()), Task(name, "e", "c"), Rules(), "x")
        self.records.create(spec, plan)
        return self.records.get(name)

    def tell(self, kind: Kind, **data: Any) -> None:
        self.records.append("dev-s", [self.session.event(kind, data=data)])

    def state(self) -> GangState:
        return self.engine.poll([GUEST])[GUEST.key].state


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with opened_database(tmp_path / "db") as database:
        yield Bed(Records(database))


def test_a_stopped_guest_lives_only_as_long_as_its_session(bed: Bed):
    bed.engine.orders(bed.session, 0, {GUEST.key: True})
    assert bed.state() is GangState.UNKNOWN
    bed.tell(Kind.CLOSING, purpose="finish", reason=Reason.NODE_LOST)
    bed.tell(Kind.FINISHED, status=JobStatus.FAILED)
    assert bed.state() is GangState.GONE


def test_the_agent_of_a_job_that_is_no_session_says_nothing_of_guests(bed: Bed):
    assert bed.engine.orders(bed.make("other", {}), 0, {GUEST.key: True}) is None
    assert bed.state() is GangState.GONE
